package archive

import (
	"math/bits"
	"strings"
	"unicode/utf8"
)

// Bounds of a tenant's patterns: each entry of an archive is matched against each of them. What that may cost is bounded by
// Matcher.
const (
	maxPatternBytes = 16 << 10
	maxPatterns     = 500
	maxElements     = 63 // of one pattern: as many bits as a state has, but for the one that means its end
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

// pattern is one line.
type pattern struct {
	elements []glob // of the path; nil is "**", any number of them
	first    uint64 // the state at the root
	anchored bool   // matches from the root, not at any depth
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
	elements := strings.Split(strings.TrimPrefix(line, "/"), "/")
	for i, text := range elements {
		if text == "**" && p.anchored {
			if i == 0 || elements[i-1] != text {
				p.elements = append(p.elements, nil)
			}
			continue
		}
		g, reason := newGlob(text)
		if reason != "" {
			return pattern{}, false, reason
		}
		p.elements = append(p.elements, g)
	}
	// "a/**" means everything inside a, not a itself.
	if p.elements[len(p.elements)-1] == nil {
		anything, _ := newGlob("*") // which is one
		p.elements = append(p.elements, anything)
	}
	if len(p.elements) > maxElements {
		return pattern{}, false, "the pattern is deeper than any path"
	}
	p.first = p.state(0)
	return p, true, ""
}

// state is the state of a path that has got as far as the element: bit i stands for element i, the one behind the last for the
// pattern's end. "**" may also be nothing.
func (p pattern) state(element int) uint64 {
	s := uint64(1) << element
	if element < len(p.elements) && p.elements[element] == nil {
		s |= 1 << (element + 1)
	}
	return s
}

// next goes from a folder, whose state is given and which the pattern does not match, to what has the name in it. It returns the
// state there, and whether the pattern matches; what that costs is taken from steps.
func (p pattern) next(state uint64, name string, steps *int) (next uint64, matches bool) {
	*steps--
	if !p.anchored {
		return 0, p.elements[0].match(name, steps)
	}
	for ; state != 0; state &= state - 1 {
		i := bits.TrailingZeros64(state)
		if p.elements[i] == nil {
			next |= p.state(i)
		} else if p.elements[i].match(name, steps) {
			next |= p.state(i + 1)
		}
	}
	return next, next>>len(p.elements)&1 == 1
}
