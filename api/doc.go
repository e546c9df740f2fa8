// Package api is the root of the Go types behind Lanyard's custom resources.
//
// Each API group has a folder, and each version of a group has a package in it. For example,
// toolkit/v1alpha1 holds toolkit.lanyard.dev/v1alpha1. Package meta holds the types that several
// groups share. The module depends only on k8s.io/apimachinery and sigs.k8s.io/json. So a program
// that uses only these types links no controller framework and no cloud's SDK.
package api
