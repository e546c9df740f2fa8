// Package objectstore makes one archive of the objects of a bucket, at any cloud.
//
//	index, err := objectstore.List(ctx, storage, source, opts)   // keys and versions; no object is fetched
//	if index.Revision() == known && index.Continues(note) { return } // nothing has changed
//	done, err := objectstore.Write(ctx, storage, index, previous, out, opts.MaxBytes)
//
// [Storage] is the part that differs between clouds. Each package below implements it with the
// cloud's own client. This package has the rest: how requests are sent ([NewClient]), what their
// failures mean ([Error]), and how objects become an archive.
//
// # Index and revision
//
// An [Index] is the sorted list of an archive's objects with their versions, as a text. Its
// SHA-256, without the reader, is the revision. A caller that keeps the text beside the archive
// fetches only what changed, after a restart too. Entry i of the archive is line i of its index. If
// the text or the archive is lost, or the reader changed, everything is fetched again. A reader
// that may list a bucket may not be allowed to read its objects.
//
// # Bounds
//
// Memory is the index of at most [MaxObjects] objects, plus a page of the listing or a fixed
// piece of at most [Concurrency] objects. An object's size does not matter. A page that would take
// far more memory than it has bytes is refused. An object that changes after it was listed is not
// fetched, because its version is a condition of the request. The next attempt lists it anew.
//
// # Names
//
// Strangers choose keys, so the rules of package archive for names apply to them. All keys are
// judged before anything is fetched, even keys that patterns leave out.
package objectstore
