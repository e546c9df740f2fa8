// Package flux tests Lanyard against Flux's own code and documentation. Flux's Go types and fetcher
// read what Lanyard publishes. Lanyard's CRDs accept the manifests of Flux's documentation, or
// refuse them with a message from docs/flux.md. Versions, filters, exclusions and ignore patterns
// mean the same as in Flux, or docs/deviations.md says why not. The package is a module of its own,
// so that no other module depends on Flux.
package flux
