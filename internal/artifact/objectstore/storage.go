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
	// Version changes with the object's content: an entity tag, or a generation. Equal versions of
	// one key are equal content.
	Version string
	// Size is the length of the content in bytes.
	Size int64
}

// Storage is one bucket. It is safe for concurrent use. Errors are [*origin.Error], or come from
// the credentials as they are.
type Storage interface {
	// List yields the objects whose keys begin with prefix, page by page, in the service's order.
	// An error ends it.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Open reads the object if it still has its version, byte for byte as it is stored. The caller
	// closes it. An object that is gone or changed is CodeChanged.
	Open(ctx context.Context, object Object) (io.ReadCloser, error)
}
