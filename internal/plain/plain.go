// Package plain shows text that a stranger wrote.
package plain

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text puts a space in place of each character that does not show: line ends and other controls,
// characters that format or reverse text (Unicode's category Cf), unusual spaces, and bytes that
// are no UTF-8. Such characters can move a terminal's cursor, forge a line of a log, or hide what a
// text says.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
