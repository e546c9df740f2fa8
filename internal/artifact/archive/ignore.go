package archive

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a tenant's patterns: each entry of an archive is matched against each of them.
const (
	maxPatternBytes = 16 << 10
	maxPatterns     = 500
)

// Flux's default exclusions, as its documentation lists them ("Default exclusions" of GitRepository and OCIRepository).
const (
	vcsExcludes = `.git/
.gitignore
.gitmodules
.gitattributes
`
	defaultExcludes = `*.jpg
*.jpeg
*.gif
*.png
*.wmv
*.flv
*.tar.gz
*.zip
.github/
.circleci/
.travis.yml
.gitlab-ci.yml
appveyor.yml
.drone.yml
cloudbuild.yaml
codeship-services.yml
codeship-steps.yml
**/.goreleaser.yml
**/.sops.yaml
**/.flux.yaml
`
)

// Patterns decides which paths are left out of an archive. The zero value leaves nothing out. It is immutable.
type Patterns struct {
	list []pattern
}

type pattern struct {
	segments []string // path elements; "**" stands for any number of them
	anchored bool     // matches from the root, not at any depth
	dirOnly  bool
	negated  bool
}

// DefaultPatterns returns what is left out when nobody says otherwise: version control files, CI configuration, media
// and archives. The list is Flux's.
func DefaultPatterns() Patterns {
	// A constant that is covered by a test; it cannot fail.
	p, _ := parse(vcsExcludes + defaultExcludes)
	return p
}

// ParsePatterns reads the .gitignore format (https://git-scm.com/docs/gitignore) from the field spec.ignore. As in Flux,
// given patterns replace the defaults, except those for version control files, which always come first. The error is
// an *Error with ReasonPattern.
func ParsePatterns(text string) (Patterns, error) {
	if len(text) > maxPatternBytes {
		return Patterns{}, refuse(ReasonPattern, "", "shorten spec.ignore", "spec.ignore is longer than %d bytes", maxPatternBytes)
	}
	return parse(vcsExcludes + text)
}

func parse(text string) (Patterns, error) {
	var out Patterns
	offset := strings.Count(vcsExcludes, "\n")
	number := 0
	for line := range strings.Lines(text) {
		number++
		p, ok, reason := parseLine(strings.TrimRight(line, "\r\n"))
		if reason != "" {
			return Patterns{}, refuse(ReasonPattern, "", "correct spec.ignore",
				"spec.ignore, line %d: %s", number-offset, reason)
		}
		if ok {
			out.list = append(out.list, p)
		}
	}
	if len(out.list) > maxPatterns {
		return Patterns{}, refuse(ReasonPattern, "", "shorten spec.ignore", "spec.ignore has more than %d patterns", maxPatterns)
	}
	return out, nil
}

func parseLine(line string) (p pattern, ok bool, reason string) {
	if !utf8.ValidString(line) || strings.ContainsRune(line, 0) {
		return p, false, "the pattern is not valid UTF-8"
	}
	if strings.HasPrefix(line, "#") {
		return p, false, ""
	}
	// Trailing spaces do not count unless the last one is escaped.
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = strings.TrimSuffix(line, " ")
	}
	if rest, found := strings.CutPrefix(line, "!"); found {
		p.negated, line = true, rest
	}
	if rest, found := strings.CutSuffix(line, "/"); found {
		p.dirOnly, line = true, rest
	}
	if line == "" {
		return p, false, ""
	}
	p.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	p.segments = strings.Split(line, "/")
	for i, s := range p.segments {
		if s == "**" && p.anchored {
			continue
		}
		if reason := checkGlob(s); reason != "" {
			return pattern{}, false, reason
		}
		p.segments[i] = s
	}
	// "a/**" means everything inside a, not a itself.
	if p.anchored && p.segments[len(p.segments)-1] == "**" {
		p.segments = append(p.segments, "*")
	}
	return p, true, ""
}

// Excludes reports whether the clean path name is left out. A directory's own exclusion is its entry's; what it holds is
// asked for separately.
func (p Patterns) Excludes(name string, isDir bool) bool {
	if len(p.list) == 0 {
		return false
	}
	parts := strings.Split(name, "/")
	for _, one := range slices.Backward(p.list) {
		if one.matches(parts, isDir) {
			return !one.negated
		}
	}
	return false
}

// matches reports whether the pattern matches the path or one of its parents.
func (p pattern) matches(parts []string, isDir bool) bool {
	for n := 1; n <= len(parts); n++ {
		if p.dirOnly && n == len(parts) && !isDir {
			continue
		}
		if p.anchored {
			if matchSegments(p.segments, parts[:n]) {
				return true
			}
		} else if matchGlob(p.segments[0], parts[n-1]) {
			return true
		}
	}
	return false
}

// matchSegments matches whole paths. It goes back to the last "**" only, which bounds it to pattern × path.
func matchSegments(pat, parts []string) bool {
	p, s := 0, 0
	star, mark := -1, 0
	for s < len(parts) {
		switch {
		case p < len(pat) && pat[p] == "**":
			star, mark = p, s
			p++
		case p < len(pat) && matchGlob(pat[p], parts[s]):
			p++
			s++
		case star >= 0:
			mark++
			p, s = star+1, mark
		default:
			return false
		}
	}
	for p < len(pat) && pat[p] == "**" {
		p++
	}
	return p == len(pat)
}

// matchGlob matches one path element against *, ?, [...] and \x. It goes back to the last "*" only, which bounds it to
// pattern × name, whatever a tenant writes.
func matchGlob(pat, name string) bool {
	p, s := 0, 0
	star, mark := -1, 0
	for s < len(name) {
		if p < len(pat) && pat[p] == '*' {
			star, mark = p, s
			p++
			continue
		}
		if p < len(pat) {
			r, size := utf8.DecodeRuneInString(name[s:])
			if next, ok := matchOne(pat[p:], r); ok {
				p += next
				s += size
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, size := utf8.DecodeRuneInString(name[mark:])
		mark += size
		p, s = star+1, mark
	}
	for p < len(pat) && pat[p] == '*' {
		p++
	}
	return p == len(pat)
}

// matchOne matches the pattern's first element, which is not "*", against one rune and returns its length in bytes. The
// pattern has passed checkGlob.
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

// matchClass matches a bracket expression such as [a-z] or [!0-9].
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

// checkGlob returns why a path element cannot be a pattern, or "".
func checkGlob(pat string) string {
	for i := 0; i < len(pat); {
		switch pat[i] {
		case '\\':
			if i+1 == len(pat) {
				return `the pattern ends in a single "\"`
			}
			_, n := utf8.DecodeRuneInString(pat[i+1:])
			i += 1 + n
		case '[':
			n, _ := matchClass(pat[i:], 0)
			if n == 0 {
				return `a "[" is not closed`
			}
			i += n
		default:
			i++
		}
	}
	return ""
}
