// Package archive turns the tar archives that strangers publish into archives that are safe to hand on.
//
// Normalize reads a tar stream, plain or gzip, and writes a tar.gz that holds nothing but directories and regular
// files with clean relative names and uniform headers. It streams: no content is kept in memory and nothing is
// written to the disk, so no entry can reach outside a folder while it is being judged. Whatever an archive does
// that could surprise an extractor is refused with an *Error that names the entry; the output is then incomplete
// and must be thrown away.
//
// # Links
//
// The output never holds a link, so that even an extractor that follows links blindly stays inside its folder.
// A symbolic link whose target stays inside the archive is left out and counted in Summary.SkippedLinks, which is
// what Flux does with every link. A link that is absolute or that leaves the archive is refused: nobody publishes
// one by accident. Hard links are always refused, because leaving one out would lose a file's content.
//
// # Copies
//
// Copy keeps the published bytes, and so must refuse what Normalize leaves out: links of any kind, setuid, setgid and sticky
// bits (of folders setuid alone), extended attributes but those of macOS, and global records other than a comment. It also refuses
// headers that programs understand in different ways, such as two paths for one entry: what was judged must be what is unpacked.
// Owners, times and the other permission bits stay as they are.
//
// # Reproducibility
//
// Entries keep their order. Owner, times, extended attributes and all permission bits but "executable by its owner"
// are dropped. Equal input gives equal output for one version of Go (its gzip writer may change between versions), and
// normalising an output again gives the same bytes.
//
// # Ignore patterns
//
// Patterns leaves files out. ParsePatterns reads the .gitignore format with one difference, which is Flux's: the
// last pattern that matches a path or one of its parents decides, so a file can be taken in again although a parent
// folder is excluded. A .sourceignore file inside an archive is content like any other: it is for the tool that
// builds the archive.
package archive
