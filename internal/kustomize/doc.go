// Package kustomize builds Kubernetes manifests from the archive of a tenant.
//
// [Builder] is the side of the controller and of the command line. It sends an archive and a [Spec] to
// a confined child process of package sandbox, and returns the objects. [Server] is the side of the
// child. It unpacks the archive into memory, checks all kustomization files, runs kustomize, and
// substitutes variables. So neither archives nor YAML of tenants are read by a process that has rights.
//
// # Encrypted files
//
// Files that SOPS encrypted are decrypted in the child before kustomize runs, with data keys that the
// caller gets elsewhere ([Request.DataKeys]). kustomize sees placeholders in place of decrypted values.
// After the build, each placeholder is replaced where its value may be, and refused elsewhere.
//
// # What is refused
//
// kustomize fetches URLs, runs git and helm, and reads any path. The child can do nothing of this,
// but its errors would say little. So kustomization files are checked before kustomize runs, and
// these are refused by field and name:
//   - URLs and names of git repositories
//   - absolute paths, and paths that leave the archive
//   - helm charts, and plugins that run programs
//
// A kustomization can also compute the configuration of a plugin. Then only the child's confinement
// stops the plugin.
//
// # Differences from Flux
//
// The result is that of Flux's kustomize-controller for the same fields, and a test compares the two.
// These inputs are refused here, but not by Flux:
//   - an unknown field in the kustomization file of Spec.Path, which kustomize itself refuses too
//   - a folder without files as Spec.Path
//   - a variable with an invalid name, even if no object wants variables replaced
package kustomize
