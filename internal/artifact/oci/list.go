package oci

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// TagFilter selects tags for a list. The zero value selects all but signatures.
type TagFilter struct {
	constraint *semver.Constraints
	pattern    *regexp.Regexp
	signatures bool
}

// TagSelection is how people write a [TagFilter].
type TagSelection struct {
	// SemVer is a range of versions, as in [Reference]; empty for none. Only versions are selected.
	SemVer string
	// Pattern is a regular expression (RE2, not anchored) that tags must match; empty for none.
	Pattern string
	// Signatures: the tags of cosign's signatures, attestations and SBOMs, too.
	Signatures bool
}

// Filter reads the selection. The error is an *origin.Error with CodeInvalidReference that names
// the flag.
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

// signature matches the tags that cosign gives ("Signature Specification", "Tag-based discovery").
var signature = regexp.MustCompile(`^sha256-[0-9a-f]{64}\.(sig|att|sbom)$`)

func (f TagFilter) match(tag string, version *semver.Version) bool {
	switch {
	case !f.signatures && signature.MatchString(tag):
		return false
	case f.pattern != nil && !f.pattern.MatchString(tag):
		return false
	default:
		return f.constraint == nil || version != nil && f.constraint.Check(version)
	}
}

// listed is a tag, with its version if it is one.
type listed struct {
	tag     string
	version *semver.Version
	numbers [3]uint64 // of the version, which mostly decide
}

func newListed(tag string, version *semver.Version) listed {
	one := listed{tag: tag, version: version}
	if version != nil {
		one.numbers = [3]uint64{version.Major(), version.Minor(), version.Patch()}
	}
	return one
}

// List returns the selected tags: versions from the highest to the lowest, and then all others in
// descending order by bytes. It keeps the selected tags in memory, at most Limits.MaxTags. The
// error is an *origin.Error, as of Tags.
func (c *Client) List(ctx context.Context, filter TagFilter) ([]string, error) {
	var list []listed
	for tag, err := range c.tags(ctx, whole) {
		if err != nil {
			return nil, err
		}
		version, _ := (&matcher{}).version(tag)
		if filter.match(tag, version) {
			list = append(list, newListed(tag, version))
		}
	}
	slices.SortFunc(list, func(a, b listed) int {
		if c := compareVersions(b, a); c != 0 {
			return c
		}
		return strings.Compare(b.tag, a.tag)
	})
	tags := make([]string, len(list))
	for i, one := range list {
		tags[i] = one.tag
	}
	return slices.Compact(tags), nil
}

// compareVersions puts what is no version below all versions.
func compareVersions(a, b listed) int {
	switch {
	case a.version == nil && b.version == nil:
		return 0
	case a.version == nil:
		return -1
	case b.version == nil:
		return 1
	}
	if c := slices.Compare(a.numbers[:], b.numbers[:]); c != 0 {
		return c
	}
	return a.version.Compare(b.version)
}
