package oci

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// DefaultTag is the tag of an empty Reference.
const DefaultTag = "latest"

// Reference selects an artifact of a repository, like the spec.ref of an OCIRepository. If several
// fields are set, the digest wins over the range, and the range over the tag. An empty Reference
// means DefaultTag. Flux has the same precedence.
type Reference struct {
	// Tag is a tag's name.
	Tag string
	// SemVer is a range of versions
	// (https://github.com/Masterminds/semver#checking-version-constraints). The highest version in
	// the range is chosen. As in Flux, a version has at least two dots; a leading "v" and leading
	// zeros are allowed. Other tags are ignored.
	SemVer string
	// Chart is true for the tags of a Helm chart. They have "_" in place of a version's "+", which
	// is not allowed in a tag.
	Chart bool
	// SemVerFilter is a regular expression (RE2, not anchored) that tags must match to be
	// considered for SemVer.
	SemVerFilter string
	// Digest is sha256:<64 hex digits>.
	Digest string
}

// maxTag is the maximum length of a tag, in bytes.
const maxTag = 128

// IsTag reports whether a text can be a tag: [a-zA-Z0-9_][a-zA-Z0-9._-]{0,127} (OCI distribution
// specification, "Pulling manifests").
func IsTag(text string) bool {
	if text == "" || len(text) > maxTag || text[0] == '.' || text[0] == '-' {
		return false
	}
	for _, b := range []byte(text) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '_', b == '.', b == '-':
		default:
			return false
		}
	}
	return true
}

// maxExpression is the maximum length of a range or a filter, in bytes.
const maxExpression = 512

// Validate checks every field without a request to a registry. The error is an *origin.Error with
// CodeInvalidReference and the field's name.
func (r Reference) Validate() error {
	_, err := r.selector()
	return err
}

// selector is a parsed Reference; exactly one of digest, match, tag is set.
type selector struct {
	digest string
	match  *matcher
	tag    string
}

type matcher struct {
	rang       string
	constraint *semver.Constraints
	filter     *regexp.Regexp
	chart      bool
}

func (r Reference) selector() (selector, error) {
	var s selector
	if r.Digest != "" {
		if err := checkDigest(r.Digest); err != nil {
			return s, invalidReference("spec.ref.digest", "write it as sha256:<64 lower-case hex digits>", "%w", err)
		}
	}
	m, err := r.matcher()
	if err != nil {
		return s, err
	}
	if r.Tag != "" && !IsTag(r.Tag) {
		return s, invalidReference("spec.ref.tag", "give a tag alone; a digest belongs in spec.ref.digest", "%q is no tag", shorten(r.Tag))
	}
	switch {
	case r.Digest != "":
		s.digest = r.Digest
	case m != nil:
		s.match = m
	case r.Tag != "":
		s.tag = r.Tag
	default:
		s.tag = DefaultTag
	}
	return s, nil
}

func (r Reference) matcher() (*matcher, error) {
	if r.SemVer == "" {
		if r.SemVerFilter != "" {
			return nil, invalidReference("spec.ref.semverFilter", "set spec.ref.semver too",
				"the filter applies to spec.ref.semver, which is empty")
		}
		return nil, nil
	}
	if len(r.SemVer) > maxExpression || len(r.SemVerFilter) > maxExpression {
		return nil, invalidReference("spec.ref.semver", "shorten it", "the range or its filter is longer than %d bytes", maxExpression)
	}
	constraint, err := semver.NewConstraint(r.SemVer)
	if err != nil {
		return nil, invalidReference("spec.ref.semver", `give a range such as ">=1.2.0 <2.0.0"`, "%q is no range of versions", r.SemVer)
	}
	m := &matcher{rang: r.SemVer, constraint: constraint, chart: r.Chart}
	if r.SemVerFilter != "" {
		if m.filter, err = parseFilter("spec.ref.semverFilter", r.SemVerFilter); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// highest holds the best tag so far: the one with the highest matching version.
type highest struct {
	matcher    *matcher
	considered int
	tag        string
	version    *semver.Version // nil until a version is found
}

// consider takes the tag if its version is higher than all earlier versions. Of two tags with equal
// versions, it takes the one that sorts last, whatever the registry's order.
func (h *highest) consider(tag string) {
	h.considered++
	if h.matcher.filter != nil && !h.matcher.filter.MatchString(tag) {
		return
	}
	v, ok := h.matcher.version(tag)
	if !ok || !h.matcher.constraint.Check(v) {
		return
	}
	if h.version != nil {
		if c := v.Compare(h.version); c < 0 || c == 0 && tag < h.tag {
			return
		}
	}
	h.tag, h.version = tag, v
}

// version parses a tag in the same way as Flux (package version of fluxcd/pkg).
func (m *matcher) version(tag string) (*semver.Version, bool) {
	if strings.Count(tag, ".") < 2 {
		return nil, false
	}
	if m.chart {
		tag = strings.ReplaceAll(tag, "_", "+")
	}
	bare := strings.TrimPrefix(tag, "v")
	if bare == "" || bare[0] < '0' || bare[0] > '9' {
		return nil, false // skip the slow parser
	}
	if v, err := semver.StrictNewVersion(bare); err == nil {
		return v, true // as NewVersion would return, but faster
	}
	v, err := semver.NewVersion(tag)
	return v, err == nil
}

// checkDigest accepts only sha256, the one algorithm that every registry supports.
func checkDigest(digest string) error {
	if h, err := v1.NewHash(digest); err != nil || h.Algorithm != "sha256" || h.String() != digest {
		return fmt.Errorf("%q is no sha256 digest", shorten(digest))
	}
	return nil
}

func invalidReference(field, fix, format string, args ...any) *origin.Error {
	return &origin.Error{Code: origin.CodeInvalidReference, Field: field, Fix: fix, Err: fmt.Errorf(format, args...)}
}

// shorten cuts a tenant's text, so that it cannot fill a status condition's message.
func shorten(s string) string {
	const limit = 128
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
