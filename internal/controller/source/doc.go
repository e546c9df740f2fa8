// Package source has the code that is shared by the kinds that fetch an artifact. A source is an
// object that refers to a repository or a bucket outside the cluster. Its controller reads the
// repository or bucket at every interval, with the credential of the object's tenant. It puts the
// artifact into the artifact store, and the artifact's description into the object's status.
//
// The package builds on package tenant. A reconciliation has these phases:
//
//	Decide:  Kind.Decide ──▶ plan, or a refusal
//	Act:     Kind.Fetch ──▶ artifact ──▶ status
//	             └─ package access: Secrets, connection, credential
//	             └─ [Artifacts]: the store
//	Report:  ArtifactInStorage, ExternalArtifact
//
// The store is written before the status, so a status never refers to an artifact that was not
// stored. If the controller is killed in between, the artifact is in no status, and the collector
// removes it. If the store loses its volume, the artifacts in statuses are fetched again before the
// controller is ready. The controller waits for a few minutes at most.
//
// The package depends on no cloud: it gets providers by their names.
package source
