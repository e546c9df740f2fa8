// Package archive converts untrusted tar archives to archives that are safe to unpack.
//
// Normalize reads a tar stream, plain or gzip, and writes a tar.gz. The output contains only
// directories and regular files, with clean relative names and uniform headers. Normalize keeps no
// content in memory and writes nothing to the disk, so no entry can reach outside a folder while it
// is checked. Any entry that could surprise an extractor is refused with an *Error that names the
// entry. The output is then incomplete and must be deleted.
//
// # Links
//
// The output never contains a link. So even an extractor that follows every link stays inside its
// folder. A symbolic link whose target is inside the archive is left out and counted in
// Summary.SkippedLinks. (Flux leaves out every link.) A symbolic link that is absolute or leaves
// the archive is refused: nobody publishes such a link by accident. Hard links are always refused,
// because without the link a file's content would be lost.
//
// # Copies
//
// Copy keeps the published bytes, so it refuses some things that Normalize leaves out:
//   - links of any kind
//   - setuid, setgid and sticky bits; for folders only setuid
//   - extended attributes, except those of macOS
//   - global records other than a comment
//
// Copy also refuses headers that programs understand in different ways, such as two paths for one
// entry. An extractor must unpack exactly what was checked. Owners, times and the other permission
// bits stay unchanged.
//
// # Reproducibility
//
// Normalize keeps the order of the entries. It drops owners, times, extended attributes and all
// permission bits except "executable by its owner". For one version of the compressor, equal input
// gives equal output. Normalizing an output again gives the same bytes. A newer version of the
// compressor may compress differently. Artifacts that are then written anew have other digests.
//
// # Ignore patterns
//
// Patterns select files to leave out. ParsePatterns reads the .gitignore format with one
// difference, as Flux does: the last pattern that matches a path or one of its parents decides. So
// a file can be included again although a parent folder is excluded. A .sourceignore file inside an
// archive is ordinary content: it is for the tool that builds the archive.
package archive
