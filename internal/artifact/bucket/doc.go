// Package bucket makes one archive of the objects of a bucket, whoever serves it.
//
//	index, err := bucket.List(ctx, storage, source, opts)   // keys and versions; no object is fetched
//	if index.Revision() == known && index.Continues(note) { return } // nothing has changed
//	done, err := bucket.Write(ctx, storage, index, previous, out, opts.Limits)
//
// [Storage] is what differs between clouds; the packages below have one each, through the cloud's own client. What does not
// differ is here: how requests leave ([NewClient]), what their failures mean ([Error]), and what becomes of the objects.
//
// # Index and revision
//
// An [Index] is the sorted list of an archive's objects with their versions, as a text. Its SHA-256, but for who read them, is the
// revision. Whoever keeps the text beside the archive has all that is needed to fetch only what changed, after a restart too: entry
// i of the archive is line i of its index. If either is lost, or the reader is another, everything is fetched again: who may list
// a bucket need not be one who may read it.
//
// # Bounds
//
// Memory is the index of at most [DefaultMaxObjects] objects, plus a page of the listing or a fixed piece of at most [Concurrency]
// objects: an object's size does not matter, and a page that would take far more memory than it has bytes is refused. An object that changes after it was listed is not fetched, because its version is a condition of the
// request; the next attempt lists it anew.
//
// # Names
//
// Keys are names of strangers, and archive's rules for names hold for them. They are judged before anything is fetched, those
// that patterns leave out included.
package bucket
