// Package ocirepository implements the kind OCIRepository. An OCIRepository names an artifact in an
// OCI repository. The controller fetches the artifact's layer into the artifact store. The package
// is built on package source.
//
//	fetch:  which revision? ──▶ the one in the store: done
//	                        └─▶ another: pull ──▶ normalise ──▶ store ──▶ status
package ocirepository
