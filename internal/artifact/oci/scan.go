package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// Bounds of a scan's exclusions. The schema has the same bounds.
const (
	maxExclusions      = 25
	maxExclusionLength = 256 // bytes
)

// latestTags is the number of tags in Scan.Latest.
const latestTags = 10

// Exclusions is the parsed spec.exclusionList of an ImageRepository. A scan leaves out the tags
// that match. The zero value excludes no tags.
type Exclusions struct {
	expressions []*regexp.Regexp
}

// ParseExclusions parses regular expressions in RE2's syntax, which are not anchored. It accepts at
// most 25 expressions, of at most 256 bytes each. The error is an *origin.Error with
// CodeInvalidReference and the index of the expression.
func ParseExclusions(list []string) (Exclusions, error) {
	const field = "spec.exclusionList"
	if len(list) > maxExclusions {
		return Exclusions{}, invalidReference(field, "join some of them with |", "there are more than %d expressions", maxExclusions)
	}
	var e Exclusions
	left := maxInstructions
	for i, text := range list {
		place := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case text == "":
			return Exclusions{}, invalidReference(place, "remove it", "it is empty, which leaves out every tag")
		case len(text) > maxExclusionLength:
			return Exclusions{}, invalidReference(place, "shorten it", "it is longer than %d bytes", maxExclusionLength)
		}
		expression, err := compile(place, text, &left)
		if err != nil {
			return Exclusions{}, err
		}
		e.expressions = append(e.expressions, expression)
	}
	return e, nil
}

// Match reports whether the tag is left out.
func (e Exclusions) Match(tag string) bool {
	return slices.ContainsFunc(e.expressions, func(expression *regexp.Regexp) bool { return expression.MatchString(tag) })
}

// Scan is a summary of a repository's tags.
type Scan struct {
	// Tags is the number of tags.
	Tags int
	// Revision is the digest, sha256:<hex>, of the tags in ascending byte order, each followed by a
	// line feed. No tag contains a line feed, so different sets have different revisions.
	Revision string
	// Latest has the first ten tags in descending byte order.
	Latest []string
}

// Scan summarizes the tags that are not excluded. It holds all these tags in memory: 50,000 tags of
// 40 bytes take 3 MiB. The maximum, 100,000 tags of 128 bytes, takes 15 MiB. The error is an
// *origin.Error, with the same codes as the errors of [Client.Tags].
func (c *Client) Scan(ctx context.Context, exclusions Exclusions) (Scan, error) {
	var tags []string
	used, taken := 0, 0 // bytes that the tags use, and that the program's pool has given
	for tag, err := range c.Tags(ctx) {
		if err != nil {
			return Scan{}, err
		}
		if exclusions.Match(tag) {
			continue
		}
		const tagCost, step = 50, 64 << 10 // a string's header costs twice as much while the list grows
		if used += len(tag) + tagCost; used > taken {
			if err := reserve.Take(ctx, step); err != nil {
				return Scan{}, c.bodyError(ctx, err, "the list of tags")
			}
			taken += step
		}
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	digest := sha256.New()
	for _, tag := range tags {
		_, _ = io.WriteString(digest, tag+"\n") // a hash never fails
	}
	latest := slices.Clone(tags[max(0, len(tags)-latestTags):])
	slices.Reverse(latest)
	return Scan{Tags: len(tags), Revision: "sha256:" + hex.EncodeToString(digest.Sum(nil)), Latest: latest}, nil
}
