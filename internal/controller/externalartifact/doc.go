// Package externalartifact publishes artifacts to Flux: an ExternalArtifact of source.toolkit.fluxcd.io/v1 (Flux's RFC-0012) says
// where an artifact is, and Flux's Kustomizations and HelmReleases consume it like one of Flux's own sources.
//
// An ExternalArtifact has the name and the namespace of the source that it is made for, and belongs to it by a controller owner
// reference with the source's UID. That reference alone decides whether one is ours: any other of that name is somebody else's,
// and neither written nor deleted. It is no secret and proves nothing to others, and need not: who can forge it may write the
// ExternalArtifacts of the namespace anyway, and could as well change ours, or make another for Flux to consume. What a
// forger gets is an object that Lanyard corrects at every interval and that goes with the source.
//
// The objects are written unstructured, so that nothing of Flux is linked, and read from the API server when they are needed:
// there is no watch, which would fail where the kind does not exist.
package externalartifact
