// Package source is the frame of the kinds that fetch. A source is an object that names something
// outside the cluster: a repository, a bucket, an image. Its controller looks there at every
// interval, as the object's own tenant. The object's status says what was found: an artifact that
// is kept in the artifact store, or only the result of a scan.
//
// The package builds on package object, whose phases become:
//
//	Decide:  spec.Resolve ──▶ identity ──Kind.Decide──▶ plan, or a refusal
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
