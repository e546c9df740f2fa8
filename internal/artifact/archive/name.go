package archive

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a name. They bound the memory for the names of an archive. Every common file system
// accepts names within these bounds.
const (
	maxPath    = 1024 // bytes of a whole path
	maxSegment = 255  // bytes of one path element
	maxDepth   = 64   // elements of a path
)

// CleanName returns the name that Normalize gives to an entry: relative, without "." elements, and
// without repeated or trailing slashes. The root itself is ".". The error is an *Error with
// ReasonPath and the raw name.
func CleanName(raw string) (string, error) {
	const fix = "publish the archive with clean relative names"
	switch {
	case raw == "":
		return "", refuse(ReasonPath, raw, fix, "the name is empty")
	case len(raw) > maxPath:
		return "", refuse(ReasonPath, raw, fix, "the name is longer than %d bytes", maxPath)
	case !utf8.ValidString(raw):
		return "", refuse(ReasonPath, raw, fix, "the name is not valid UTF-8")
	case strings.HasPrefix(raw, "/"):
		return "", refuse(ReasonPath, raw, fix, "the name is absolute")
	case strings.ContainsRune(raw, '\\'):
		return "", refuse(ReasonPath, raw, fix, "the name contains a backslash, which is a separator on some systems")
	case strings.ContainsFunc(raw, unicode.IsControl):
		return "", refuse(ReasonPath, raw, fix, "the name contains a control character")
	}
	depth := 0
	for part := range strings.SplitSeq(raw, "/") {
		switch {
		case part == "..":
			return "", refuse(ReasonPath, raw, fix, `the name contains ".."`)
		case len(part) > maxSegment:
			return "", refuse(ReasonPath, raw, fix, "an element of the name is longer than %d bytes", maxSegment)
		case part != "" && part != ".":
			depth++
		}
	}
	if depth > maxDepth {
		return "", refuse(ReasonPath, raw, fix, "the name is nested deeper than %d", maxDepth)
	}
	return path.Clean(raw), nil
}

// staysInside reports whether a symbolic link at name leads to a place inside the archive. The name
// must be clean. staysInside only compares text, while a file system would follow links on the way.
// This is enough, because no link reaches the output. The answer only decides whether a link is
// refused or left out.
func staysInside(name, target string) bool {
	if target == "" || strings.HasPrefix(target, "/") || strings.ContainsAny(target, "\\\x00") {
		return false
	}
	resolved := path.Join(path.Dir(name), target)
	return resolved != ".." && !strings.HasPrefix(resolved, "../")
}
