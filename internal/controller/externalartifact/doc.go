// Package externalartifact publishes artifacts to Flux. An ExternalArtifact of
// source.toolkit.fluxcd.io/v1 (Flux's RFC-0012) says where an artifact is. Flux's Kustomizations
// and HelmReleases use the ExternalArtifact like one of Flux's own sources.
//
// An ExternalArtifact has the name and the namespace of its source, and a controller owner
// reference with the source's UID. Only this reference shows that an ExternalArtifact belongs to
// Lanyard. Without it, an ExternalArtifact of that name belongs to somebody else, and Lanyard
// neither writes nor deletes it.
//
// The reference is not a secret and can be forged. This does no harm, because a forger must have
// the right to write ExternalArtifacts in the namespace. With this right, the forger could also
// change Lanyard's ExternalArtifact, or create another ExternalArtifact for Flux. Lanyard corrects
// the forged ExternalArtifact at every interval, and it is deleted with the source.
//
// The objects are unstructured, so that no code of Flux is linked. Lanyard reads them from the API
// server when needed, because a watch would fail in a cluster without the kind.
package externalartifact
