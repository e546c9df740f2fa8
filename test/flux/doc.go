// Package flux tests Lanyard against Flux's own code and documentation. Flux's Go types and fetcher
// read what Lanyard publishes. The manifests of Flux's documentation are stored, or refused with
// the words of docs/flux.md. Versions, filters, exclusions and ignore patterns mean what they mean
// in Flux, or docs/deviations.md says why not. It is a module of its own, so that no other module
// depends on Flux.
package flux
