// Package externalartifact publishes artifacts to Flux. An ExternalArtifact of
// source.toolkit.fluxcd.io/v1 (Flux's RFC-0012) says where an artifact is. Flux's Kustomizations
// and HelmReleases use the ExternalArtifact like one of Flux's own sources.
//
// An ExternalArtifact has the name and the namespace of its source. Its controller owner reference
// has the source's UID. Only this reference shows that an ExternalArtifact belongs to Lanyard.
// Lanyard neither writes nor deletes an ExternalArtifact without it.
//
// The reference can be forged, but this does no harm. A forger must have the right to write
// ExternalArtifacts in the namespace. With this right, the forger could also change Lanyard's
// ExternalArtifact, or create another one for Flux. Lanyard corrects the forged ExternalArtifact at
// every interval. The forged ExternalArtifact is deleted with the source.
//
// The objects are unstructured, so that no code of Flux is linked. Lanyard reads them from the API
// server when needed, because a watch would fail in a cluster without the kind.
package externalartifact
