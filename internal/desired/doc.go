// Package desired reads from a Kustomization what its objects should be.
//
// The controller applies the result. The command "lanyard diff kustomization" compares the result
// with a cluster. Both use this package, so both build the same manifests.
package desired
