// Package flux holds the test that Flux takes what Lanyard publishes: it reads the ExternalArtifact into Flux's own Go type, and
// fetches the artifact with the library and the options of Flux's kustomize-controller. It is a module of its own, so that no
// other module depends on Flux.
package flux
