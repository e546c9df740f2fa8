// Package plain makes untrusted text safe to print.
package plain

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text replaces each character that is not printable with a space:
//
//   - line ends and other controls
//   - characters that format or reverse text (Unicode's category Cf)
//   - unusual spaces
//   - bytes that are not UTF-8
//
// Such characters can move a terminal's cursor, forge a line of a log, or hide a part of the text.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
