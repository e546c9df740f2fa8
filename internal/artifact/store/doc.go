// Package store stores artifacts in a folder, by digest, for the objects that produced them.
//
// # Layout
//
//	<kind>/<namespace>/<name>/<uid>/<sha256>.tar.gz   artifacts
//	<kind>/<namespace>/<name>/<uid>/<sha256>.note     the producer's note of an artifact
//	.tmp/                                             unfinished files; Open deletes these files
//	.key                                              the key for the MACs in URLs, made by Open
//
// The store has no state outside the folder. A file is renamed to its final name after its content
// is on the disk. So a process that is killed at any moment leaves every artifact either whole or
// absent. Each UID of an object has its own folder. If an object is deleted and created again with
// the same name, the new object has no artifacts, and its URLs differ.
//
// # URLs
//
// An artifact is its tenant's data, so its URL is a capability:
// /<kind>/<namespace>/<name>/<mac>/<sha256>.tar.gz, where mac is HMAC-SHA256 over kind, namespace,
// name, UID and digest. Whoever may read the object's status knows the URL. Nobody can compute the
// URL without the key. If the folder is lost, its key is lost too: the statuses get new URLs.
//
// # Bounds
//
// Options bound the size of the whole folder, and the size of each namespace's files. If the folder
// has a bound, each namespace also has a share of the folder. The shares leave room for namespaces
// that have stored little. A write that would exceed a bound or a share fails with ErrFull. A write
// for which the volume has no room fails with ErrVolume. To avoid ErrVolume, set the folder's bound
// below the volume's size. A write that fails for lack of room changes no artifact. Collect removes
// artifacts that are not needed any more.
//
// Only one process at a time should write to a folder. Each process counts only its own writes, so
// several processes could together exceed the bounds.
package store
