package archive

import (
	"strings"
	"unicode/utf8"
)

// glob is a pattern for one path element, split at each "*". A pattern without "*" has one piece.
type glob []piece

// piece is one of the parts into which "*" divides a pattern.
type piece struct {
	text string
	// runes is -1 if text is literal. If text contains ?, [...] or \x, runes is the number of runes
	// that text matches.
	runes int
}

// newGlob parses a pattern, or says why it is not a pattern.
func newGlob(text string) (g glob, reason string) {
	begin := 0
	for at := 0; at < len(text); {
		if text[at] == '*' {
			// Within an element, "**" means "*": add no empty piece between two stars.
			if g == nil || begin < at {
				g = append(g, newPiece(text[begin:at]))
			}
			at++
			begin = at
			continue
		}
		n, reason := elementLen(text[at:])
		if reason != "" {
			return nil, reason
		}
		at += n
	}
	return append(g, newPiece(text[begin:])), ""
}

// elementLen returns the length in bytes of a pattern's first element: ?, [...], \x or a literal
// rune. The element must not be "*".
func elementLen(pat string) (n int, reason string) {
	switch pat[0] {
	case '\\':
		if len(pat) == 1 {
			return 0, `the pattern ends in a single "\"`
		}
		_, n := utf8.DecodeRuneInString(pat[1:])
		return 1 + n, ""
	case '[':
		if n, _ := matchClass(pat, 0); n > 0 {
			return n, ""
		}
		return 0, `a "[" is not closed`
	default:
		_, n := utf8.DecodeRuneInString(pat)
		return n, ""
	}
}

func newPiece(text string) piece {
	if !strings.ContainsAny(text, `?[\`) {
		return piece{text: text, runes: -1}
	}
	p := piece{text: text}
	for at := 0; at < len(text); p.runes++ {
		n, _ := elementLen(text[at:]) // newGlob has checked the text
		at += n
	}
	return p
}

// match reports whether the glob matches the path element, and subtracts the cost from steps. Each
// piece between two "*" matches at the first position where it fits. This position leaves the most
// text to the pieces after it.
func (g glob) match(name string, steps *int) bool {
	*steps--
	n, ok := g[0].begins(name, steps)
	if !ok || len(g) == 1 {
		return ok && n == len(name)
	}
	name = name[n:]
	if n, ok = g[len(g)-1].ends(name, steps); !ok {
		return false
	}
	name = name[:len(name)-n]
	for _, p := range g[1 : len(g)-1] {
		if n, ok = p.within(name, steps); !ok {
			return false
		}
		name = name[n:]
	}
	return true
}

// begins reports whether name begins with the piece, and the length of the match in bytes.
func (p piece) begins(name string, steps *int) (int, bool) {
	if p.runes < 0 {
		return len(p.text), strings.HasPrefix(name, p.text)
	}
	at := 0
	for pat := p.text; pat != ""; {
		if at == len(name) {
			return 0, false
		}
		r, size := utf8.DecodeRuneInString(name[at:])
		n, ok := matchOne(pat, r)
		if *steps -= max(n, 1); !ok {
			return 0, false
		}
		pat, at = pat[n:], at+size
	}
	return at, true
}

// ends reports whether name ends with the piece, and the length of the match in bytes.
func (p piece) ends(name string, steps *int) (int, bool) {
	if p.runes < 0 {
		return len(p.text), strings.HasSuffix(name, p.text)
	}
	at := len(name)
	for range p.runes {
		_, size := utf8.DecodeLastRuneInString(name[:at])
		if size == 0 {
			return 0, false
		}
		at -= size
	}
	return p.begins(name[at:], steps)
}

// within finds the piece in name and returns where the match ends.
func (p piece) within(name string, steps *int) (int, bool) {
	if p.runes < 0 {
		*steps -= 1 + len(name)/16 // a processor compares 16 bytes in one step
		at := strings.Index(name, p.text)
		return at + len(p.text), at >= 0
	}
	for at := 0; at < len(name); {
		if n, ok := p.begins(name[at:], steps); ok {
			return at + n, true
		}
		_, size := utf8.DecodeRuneInString(name[at:])
		at += size
	}
	return 0, false
}

// matchOne matches the pattern's first element against one rune. The element must not be "*".
// matchOne also returns the element's length in bytes.
func matchOne(pat string, r rune) (int, bool) {
	switch pat[0] {
	case '?':
		return 1, true
	case '[':
		return matchClass(pat, r)
	case '\\':
		want, size := utf8.DecodeRuneInString(pat[1:])
		return 1 + size, want == r
	default:
		want, size := utf8.DecodeRuneInString(pat)
		return size, want == r
	}
}

// matchClass matches a bracket expression such as [a-z] or [!0-9]. It returns the expression's
// length; 0 if the expression is not closed.
func matchClass(pat string, r rune) (int, bool) {
	i := 1
	negated := false
	if i < len(pat) && (pat[i] == '!' || pat[i] == '^') {
		negated = true
		i++
	}
	found := false
	for first := true; i < len(pat); first = false {
		if pat[i] == ']' && !first {
			return i + 1, found != negated
		}
		lo, n := classRune(pat[i:])
		i += n
		hi := lo
		if i+1 < len(pat) && pat[i] == '-' && pat[i+1] != ']' {
			hi, n = classRune(pat[i+1:])
			i += 1 + n
		}
		if lo <= r && r <= hi {
			found = true
		}
	}
	return 0, false
}

func classRune(pat string) (rune, int) {
	if pat[0] == '\\' && len(pat) > 1 {
		r, n := utf8.DecodeRuneInString(pat[1:])
		return r, n + 1
	}
	return utf8.DecodeRuneInString(pat)
}
