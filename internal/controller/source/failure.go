package source

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// storeError is a failure of the artifact store itself, not of the content that is written to it.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// Explain implements object.Definition. It explains the failures that all sources can have, and
// asks the kind about other failures.
func (f *fetching[O, P]) Explain(err error) (object.Failure, bool) {
	if failure, known := explain(err); known {
		return failure, true
	}
	return f.kind.Explain(err)
}

// explain returns the failure for an error in storing or publishing an artifact.
func explain(err error) (object.Failure, bool) {
	var (
		content  *archive.Error
		storage  *storeError
		external *publishError
	)
	switch {
	case errors.As(err, &external):
		return external.failure(), true
	case errors.Is(err, store.ErrFull):
		limit := "--artifact-store-max-size"
		switch {
		case errors.Is(err, store.ErrNamespaceFull):
			limit = "--artifact-namespace-max-size"
		case errors.Is(err, store.ErrShareFull):
			limit += " or ask the namespaces with the most bytes (lanyard_artifact_store_namespace_bytes) to delete sources"
		}
		return object.Failure{
			Reason: meta.ReasonStorageFull,
			Message: "the artifact was not stored: " + err.Error() +
				"; have the administrator raise " + limit + ", or publish a smaller artifact",
		}, true
	case errors.Is(err, store.ErrVolume):
		return object.Failure{
			Reason: meta.ReasonStorageFull,
			Message: "the artifact was not stored: " + err.Error() +
				"; have the administrator enlarge the volume, or set --artifact-store-max-size below its size",
		}, true
	case errors.As(err, &content):
		return object.Failure{Reason: meta.ReasonArchiveRefused, AtInterval: true}, true
	case errors.As(err, &storage):
		return object.Failure{
			Reason: meta.ReasonStorageFailed, Message: err.Error() + "; have the administrator look at the controller's log and at its disk",
		}, true
	default:
		return object.Failure{}, false
	}
}
