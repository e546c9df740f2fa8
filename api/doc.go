// Package api is the root of the Go types behind Lanyard's custom resources.
//
// Each API group has a folder, and each version of a group has a package: toolkit/v1alpha1 holds
// toolkit.lanyard.dev/v1alpha1. Types that several groups share are in meta. The module depends
// only on k8s.io/apimachinery and sigs.k8s.io/json. So a program that only reads or writes
// Lanyard's objects links neither a controller framework nor a cloud's SDK.
package api
