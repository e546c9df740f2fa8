package oci

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// TagFilter selects tags for a list. The zero value selects all tags except signatures.
type TagFilter struct {
	constraint *semver.Constraints
	pattern    *regexp.Regexp
	signatures bool
}

// TagSelection is a [TagFilter] as users write it.
type TagSelection struct {
	// SemVer selects only versions in this range, as in [Reference]; empty for no range.
	SemVer string
	// Pattern is a regular expression (RE2, not anchored) that tags must match; empty for no
	// pattern.
	Pattern string
	// Signatures also selects the tags of cosign's signatures, attestations and SBOMs.
	Signatures bool
}

// Filter parses the selection. The error is an *origin.Error with CodeInvalidReference. It names
// the invalid flag, --filter-semver or --filter-regex.
func (s TagSelection) Filter() (TagFilter, error) {
	f := TagFilter{signatures: s.Signatures}
	var err error
	if s.SemVer != "" {
		const field = "--filter-semver"
		if len(s.SemVer) > maxExpression {
			return f, invalidReference(field, "shorten it", "the range is longer than %d bytes", maxExpression)
		}
		if f.constraint, err = semver.NewConstraint(s.SemVer); err != nil {
			return f, invalidReference(field, `give a range such as ">=1.2.0 <2.0.0"`, "%q is no range of versions", s.SemVer)
		}
	}
	if s.Pattern != "" {
		f.pattern, err = parseFilter("--filter-regex", s.Pattern)
	}
	return f, err
}

// signature matches the tags that cosign creates ("Signature Specification", "Tag-based
// discovery").
var signature = regexp.MustCompile(`^sha256-[0-9a-f]{64}\.(sig|att|sbom)$`)

func (f TagFilter) match(tag string) bool {
	switch {
	case !f.signatures && strings.HasPrefix(tag, "sha256-") && signature.MatchString(tag):
		return false
	case f.pattern != nil && !f.pattern.MatchString(tag):
		return false
	case f.constraint == nil:
		return true
	}
	one := newListed(tag)
	return one.isVersion && f.constraint.Check(one.whole())
}

// listed is a tag, with its version if the tag is a version.
type listed struct {
	tag       string
	isVersion bool
	numbers   [3]uint64 // major, minor and patch version
	// version is the parsed version. It is nil if the tag is no version. It is also nil if
	// releaseNumbers has parsed the tag, because numbers is then the whole version.
	version *semver.Version
}

func newListed(tag string) listed {
	if numbers, ok := releaseNumbers(tag); ok {
		return listed{tag: tag, isVersion: true, numbers: numbers}
	}
	version, ok := (&matcher{}).version(tag)
	if !ok {
		return listed{tag: tag}
	}
	return listed{tag: tag, isVersion: true, numbers: [3]uint64{version.Major(), version.Minor(), version.Patch()}, version: version}
}

// whole returns the version of a listed tag. The tag must be a version.
func (l listed) whole() *semver.Version {
	if l.version != nil {
		return l.version
	}
	return semver.New(l.numbers[0], l.numbers[1], l.numbers[2], "", "")
}

// releaseNumbers parses the most common form of versions: 1.2.3 or v1.2.3. Unlike package semver,
// it allocates nothing.
func releaseNumbers(tag string) (numbers [3]uint64, ok bool) {
	rest := strings.TrimPrefix(tag, "v")
	for i := range numbers {
		part, after, dot := strings.Cut(rest, ".")
		if dot != (i < 2) || part == "" || len(part) > 18 || part[0] == '0' && part != "0" {
			return numbers, false
		}
		for _, b := range []byte(part) {
			if b < '0' || b > '9' {
				return numbers, false
			}
			numbers[i] = numbers[i]*10 + uint64(b-'0')
		}
		rest = after
	}
	return numbers, true
}

// List returns the selected tags. Versions come first, from the highest to the lowest. All other
// tags follow, in descending bytewise order. List holds the selected tags in memory, at most
// 100,000. The error is an *origin.Error, as for Tags.
func (c *Client) List(ctx context.Context, filter TagFilter) ([]string, error) {
	tags := []string{}
	for tag, err := range c.tags(ctx, whole) {
		if err != nil {
			return nil, err
		}
		if filter.match(tag) {
			tags = append(tags, tag)
		}
	}
	list := make([]listed, len(tags)) // appending tag by tag would double the time of List
	for i, tag := range tags {
		list[i] = newListed(tag)
	}
	slices.SortFunc(list, func(a, b listed) int {
		if c := compareVersions(b, a); c != 0 {
			return c
		}
		return strings.Compare(b.tag, a.tag)
	})
	for i, one := range list {
		tags[i] = one.tag
	}
	return slices.Compact(tags), nil
}

// compareVersions puts tags that are not versions below all versions.
func compareVersions(a, b listed) int {
	switch {
	case !a.isVersion && !b.isVersion:
		return 0
	case !a.isVersion:
		return -1
	case !b.isVersion:
		return 1
	case a.numbers != b.numbers:
		return slices.Compare(a.numbers[:], b.numbers[:])
	case a.version == nil && b.version == nil:
		return 0
	}
	return a.whole().Compare(b.whole())
}
