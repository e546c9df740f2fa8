package archive

import (
	"math/bits"
	"strings"
	"unicode/utf8"
)

// These bounds keep a tenant's patterns few and short, because each entry of an archive is matched
// against each pattern. In addition, [Matcher] limits the steps that matching may take.
const (
	maxPatternBytes = 16 << 10
	maxPatterns     = 500
	maxElements     = 63 // elements of a pattern: one less than the bits of a uint64 state
)

// Flux's default exclusions. Source: Flux's documentation, "Default exclusions" of GitRepository
// and OCIRepository.
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

// Patterns decide which paths are left out of an archive. The zero value leaves nothing out. They
// are immutable.
type Patterns struct {
	list  []pattern
	field string // where the patterns come from, such as spec.ignore; for error texts
}

// ignoreField is the field in which an object has its ignore patterns.
const ignoreField = "spec.ignore"

// pattern is one line of Patterns.
type pattern struct {
	elements []glob // path elements; nil means "**", any number of elements
	first    uint64 // state in which matching begins, at the archive's root; see the method state
	anchored bool   // matches from the root, not at any depth
	dirOnly  bool
	negated  bool
}

// DefaultPatterns returns the default patterns: version control files, CI configuration, media and
// archives. The list is Flux's.
func DefaultPatterns() Patterns {
	// parse cannot fail here, because a test parses the constants.
	p, _ := parse(vcsExcludes+defaultExcludes, ignoreField, "")
	return p
}

// ParsePatterns parses the .gitignore format (https://git-scm.com/docs/gitignore) of the field
// spec.ignore. The error is an *Error with ReasonPattern.
func ParsePatterns(text string) (Patterns, error) {
	return parse("", ignoreField, text)
}

// ParseOver is like [ParsePatterns], but also applies default patterns, as Flux does:
//   - If the text has no pattern, ParseOver returns the argument defaults.
//   - If the text has a pattern, ParseOver returns the default patterns for version control files,
//     and then the patterns of the text.
//
// The argument defaults is the result of [DefaultPatterns]. A caller that makes many calls should
// call DefaultPatterns only once, because it is slow. Errors name the given field.
func ParseOver(defaults Patterns, field, text string) (Patterns, error) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			return parse(vcsExcludes, field, text)
		}
	}
	return defaults, nil
}

// parse parses Lanyard's own patterns, and then the text of an object's field.
func parse(own, field, text string) (Patterns, error) {
	if len(text) > maxPatternBytes {
		return Patterns{}, refuse(ReasonPattern, "", "shorten "+field, "%s is longer than %d bytes", field, maxPatternBytes)
	}
	out := Patterns{field: field}
	offset := strings.Count(own, "\n")
	number := 0
	for line := range strings.Lines(own + text) {
		number++
		p, ok, reason := parseLine(strings.TrimRight(line, "\r\n"))
		if reason != "" {
			return Patterns{}, refuse(ReasonPattern, "", "correct "+field, "%s, line %d: %s", field, number-offset, reason)
		}
		if ok {
			out.list = append(out.list, p)
		}
	}
	if len(out.list) > maxPatterns {
		return Patterns{}, refuse(ReasonPattern, "", "shorten "+field, "%s has more than %d patterns", field, maxPatterns)
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
		anything, _ := newGlob("*") // "*" is a valid glob
		p.elements = append(p.elements, anything)
	}
	if len(p.elements) > maxElements {
		return pattern{}, false, "the pattern is deeper than any path"
	}
	p.first = p.state(0)
	return p, true, ""
}

// state returns the pattern's state for a path that matches p.elements[:element]. The state says
// which beginnings of the pattern match the path. It is a set of bits. Bit i says that
// p.elements[:i] matches. So bit len(p.elements) says that the whole pattern matches. If element i
// is "**", bit i+1 is set together with bit i, because "**" may match no path element.
func (p pattern) state(element int) uint64 {
	s := uint64(1) << element
	if element < len(p.elements) && p.elements[element] == nil {
		s |= 1 << (element + 1)
	}
	return s
}

// next returns the pattern's state for an entry of a folder, and whether the pattern matches the
// entry. The argument state is the pattern's state for the folder. The pattern must not match the
// folder itself. The argument name is the entry's name in the folder. The cost is subtracted from
// steps.
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
