// Package api is the root of the Go types behind Lanyard's custom resources.
//
// Each API group has a folder, each version of it a package: toolkit/v1alpha1
// holds toolkit.lanyard.dev/v1alpha1. Types that several groups share are in
// meta. The module depends on k8s.io/apimachinery and on nothing else, so that
// a program that only reads or writes Lanyard's objects links neither a
// controller framework nor a cloud's SDK.
package api
