// Package ocirepository is the kind of source that keeps artifacts of OCI repositories: an
// OCIRepository names an artifact, and its layer is kept in the artifact store. The frame is
// package source.
//
//	fetch:  which revision? ──▶ the one in the store: done
//	                        └─▶ another: pull ──▶ normalise ──▶ store ──▶ status
package ocirepository
