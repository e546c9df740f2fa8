// Package kustomize builds Kubernetes manifests from the archive of a tenant.
//
// [Builder] is the side of the controller. It sends an archive and a [Spec] to a confined child
// process of package sandbox, and returns the objects. [Serve] is the side of the child. It unpacks
// the archive into memory, checks all kustomization files, runs kustomize, and substitutes
// variables. So neither archives nor YAML of tenants are read by a process that has rights.
//
// # What is refused
//
// kustomize fetches URLs, runs git and helm, and reads any path. The child can do nothing of this,
// but its errors would say little. So every kustomization file is checked before kustomize runs,
// and these are refused by field and name:
//   - URLs and names of git repositories
//   - absolute paths, and paths that leave the archive
//   - helm charts, and plugins that run programs
//
// # Behaviour
//
// The result is that of Flux's kustomize-controller for the same fields. A test compares the two.
package kustomize
