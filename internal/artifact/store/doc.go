// Package store keeps artifacts in a folder, by digest, for the objects that made them.
//
// # Layout
//
//	<kind>/<namespace>/<name>/<uid>/<sha256>.tar.gz   artifacts
//	<kind>/<namespace>/<name>/<uid>/<sha256>.note     what its maker remembers of an artifact
//	.tmp/                                             what is being written; emptied by Open
//	.key                                              the key of the URLs, made by Open
//
// The folder is the whole state. A file is renamed to its final name after its content is on the
// disk. So a process that is killed at any moment leaves every artifact either whole or absent.
// Each UID of an object has a folder of its own. An object that is deleted and made again under the
// same name begins with nothing, and the URLs of the former object are dead.
//
// # URLs
//
// An artifact is its tenant's data, so its URL is a capability:
// /<kind>/<namespace>/<name>/<mac>/<sha256>.tar.gz, where mac is HMAC-SHA256 over kind, namespace,
// name, UID and digest. Who may read the object's status knows it; nobody can derive one. A folder
// that is lost takes its key along: the statuses are written again with other URLs.
//
// # Bounds
//
// Options bound the whole folder and each namespace. A write that would exceed a bound fails with
// ErrFull, and one that the volume has no room for with ErrVolume: the bound should be below the
// volume's size. Both leave everything as it was. Collect removes what is no longer wanted.
//
// One process at a time should write to a folder; several would each count only their own writes.
package store
