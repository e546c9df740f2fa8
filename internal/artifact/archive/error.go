package archive

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Reason says why an archive or its ignore patterns are refused. The values are stable and meant
// for programs.
type Reason string

// The reasons for a refusal.
const (
	// ReasonPath is an entry whose name is empty, absolute, too long or not valid UTF-8. It is also
	// an entry whose name leaves the archive, or contains a backslash or a control character.
	ReasonPath Reason = "unsafe-path"
	// ReasonLink is a hard link, or a symbolic link that is absolute or leaves the archive. For
	// Copy it is any link.
	ReasonLink Reason = "unsafe-link"
	// ReasonType is an entry that is neither directory, regular file nor link: a device, a fifo, a
	// sparse file.
	ReasonType Reason = "unsupported-type"
	// ReasonHeader is a header that cannot be kept unchanged. It has special permission bits,
	// extended attributes or global records, or programs read it in different ways. Only Copy has
	// this refusal.
	ReasonHeader Reason = "unsafe-header"
	// ReasonDuplicate is a name that two entries have: two files, or a file and a directory.
	ReasonDuplicate Reason = "duplicate"
	// ReasonTooLarge is an archive above Limits.MaxBytes when unpacked.
	ReasonTooLarge Reason = "too-large"
	// ReasonTooMany is an archive above Limits.MaxFiles.
	ReasonTooMany Reason = "too-many-files"
	// ReasonCorrupt is a stream that is not a complete tar or gzip: truncated, damaged, or followed
	// by other data.
	ReasonCorrupt Reason = "corrupt"
	// ReasonCompression is a compression other than gzip.
	ReasonCompression Reason = "unsupported-compression"
	// ReasonChanged is a file that changed while Create read it.
	ReasonChanged Reason = "changed"
	// ReasonPattern is an ignore pattern that cannot be read, or patterns that take too long to
	// match.
	ReasonPattern Reason = "invalid-pattern"
)

// Error is the refusal of an archive.
type Error struct {
	// Reason is the rule that was broken.
	Reason Reason
	// Entry is the name of the refused entry, unchanged from the archive. It is empty if the whole
	// archive is refused. The name is untrusted text: Error() quotes and shortens it.
	Entry string
	// Fix is the next step for the publisher or the administrator, in one sentence.
	Fix string
	// Err is the detail; never nil.
	Err error
}

// Error returns the refusal in one line: entry, detail, fix.
func (e *Error) Error() string {
	s := "archive refused: "
	if e.Entry != "" {
		s += "entry " + Quote(e.Entry) + ": "
	}
	s += e.Err.Error()
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Unwrap returns the detail.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the Reason of the first *Error in err's chain, or "" when there is none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

func refuse(r Reason, entry, fix, format string, args ...any) *Error {
	return &Error{Reason: r, Entry: entry, Fix: fix, Err: fmt.Errorf(format, args...)}
}

// Quote quotes untrusted text on one line, cut to a length that fits into a status condition's
// message.
func Quote(s string) string {
	const limit = 120
	if len(s) > limit {
		cut := limit
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strconv.Quote(s)
}
