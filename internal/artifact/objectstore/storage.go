package objectstore

import (
	"context"
	"io"
	"iter"
)

// Object is one object of a listing.
type Object struct {
	// Key is the object's whole name, as the service stores it.
	Key string
	// Version changes with the object's content: an entity tag, or a generation. If two versions of
	// a key are equal, their contents are equal.
	Version string
	// Size is the length of the content in bytes.
	Size int64
}

// Storage is one bucket. It is safe for concurrent use. An error is an [*origin.Error], or the
// unchanged error from the source of the credentials.
type Storage interface {
	// List yields the objects whose keys begin with prefix, page by page, in the service's order.
	// The listing ends at the first error.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Open reads the object's bytes as they are stored. The caller closes the reader. If the object
	// is gone or no longer has the given version, the error has CodeChanged.
	Open(ctx context.Context, object Object) (io.ReadCloser, error)
}
