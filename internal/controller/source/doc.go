// Package source is the frame of the kinds that fetch an artifact. A source is an object that names a
// repository or a bucket outside the cluster. Its controller looks there at every interval, as the
// object's own tenant. The artifact that it finds goes into the artifact store, and its description
// into the object's status.
//
// The package builds on package tenant, whose phases become:
//
//	Decide:  Kind.Decide ──▶ plan, or a refusal
//	Act:     Kind.Fetch ──▶ artifact ──▶ status
//	             └─ package access: Secrets, connection, credential
//	             └─ [Artifacts]: the store
//	Report:  ArtifactInStorage, ExternalArtifact
//
// The store is written before the status, so a status never names an artifact that was not there.
// If the controller is killed in between, no status names the artifact, and the collector removes
// it. If the store loses its volume, the artifacts in statuses are fetched again before the
// controller is ready, for a few minutes at most.
//
// The package knows no cloud: providers come in by name.
package source
