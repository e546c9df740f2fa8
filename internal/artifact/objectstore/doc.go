// Package objectstore makes one archive from the objects of a bucket, in any cloud.
//
//	index, err := objectstore.List(ctx, storage, source, opts)   // keys and versions; no object is fetched
//	if index.Revision() == oldRevision && index.Continues(oldText) { return } // nothing has changed
//	done, err := objectstore.Write(ctx, storage, index, previous, out, opts.MaxBytes)
//
// [Storage] is the interface to one cloud. The packages below implement it with the cloud's own
// client. This package does the rest: it sends requests ([NewClient]), explains their failures
// ([Explain]), and makes an archive from the objects.
//
// # Index and revision
//
// An [Index] is the sorted list of an archive's objects with their versions. The archive has one
// entry for each object of the index, in the same order. [Index.Encode] writes the index as text.
// The first line of the text has a digest of the reader, the identity that reads the objects.
// [Index.Revision] is the SHA-256 of the text without this digest.
//
// A caller that stores the text beside the archive fetches only what changed, even after a restart.
// If the text or the archive is lost, everything is fetched again. The same applies if the reader
// changed: a new reader may be allowed to list a bucket, but not to read its objects.
//
// # Bounds
//
// Memory holds the index of at most [MaxObjects] objects. It also holds a page of the listing, or a
// fixed piece of each of at most [Concurrency] objects. An object's size does not matter. A page is
// refused if decoding would take far more memory than the page has bytes. Each request for an
// object has the listed version as a condition. So an object that changed after it was listed is
// not fetched. The next attempt lists the object again.
//
// # Names
//
// Keys are untrusted, so the rules of package archive for names apply to them. All keys are checked
// before any object is fetched. A key that patterns leave out need not be a valid name.
package objectstore
