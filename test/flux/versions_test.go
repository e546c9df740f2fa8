package flux

import (
	"encoding/json"
	"go/ast"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/fluxcd/pkg/version"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// registry is an image registry with one repository. The repository has these tags.
type registry []string

// RoundTrip implements http.RoundTripper.
func (tags registry) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	switch path := req.URL.Path; {
	case path == "/v2/":
		_, _ = io.WriteString(w, "{}")
	case path == "/v2/app/tags/list":
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "app", "tags": tags})
	case strings.HasPrefix(path, "/v2/app/manifests/"):
		w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
	default:
		http.NotFound(w, req)
	}
	res := w.Result()
	res.Request = req
	return res, nil
}

func (tags registry) connect(t *testing.T) *oci.Client {
	t.Helper()
	repository, err := oci.ParseImage("registry.example.com/app")
	must.Succeed(t, err)
	client, err := oci.Connect(t.Context(), repository, oci.Options{Transport: tags})
	must.Succeed(t, err)
	return client
}

// versions returns strings from Flux:
//   - the strings in the tests of its version library
//   - the strings in the tests of how it chooses an artifact
//   - the strings in the tests of its policies
//   - the ranges and filters in its documentation
func versions(t *testing.T) []string {
	t.Helper()
	sources, images := module(t, sourceController), module(t, imageReflector)
	library := strings.TrimSpace(output(t, "list", "-f", "{{.Dir}}", "github.com/fluxcd/pkg/version"))
	artifacts := parse(t, sources, "internal/controller/ocirepository_controller_test.go")
	all := texts(
		function(t, artifacts, "TestOCIRepository_getArtifactRef"),
		parse(t, library, "version_test.go"),
		parse(t, images, "internal/policy/semver_test.go"),
		parse(t, images, "internal/policy/filter_test.go"),
	)
	for _, page := range []string{filepath.Join(sources, "docs/spec/v1/ocirepositories.md"), filepath.Join(images, "docs/spec/v1/imagepolicies.md")} {
		doc, err := os.ReadFile(page)
		must.Succeed(t, err)
		found := regexp.MustCompile(`(?m)^\s+(?:semver|semverFilter|range|pattern): ["']?(.+?)["']?$`).FindAllStringSubmatch(string(doc), -1)
		if len(found) < 2 {
			t.Errorf("%s has only the ranges and filters %q", page, found)
		}
		for _, value := range found {
			all = append(all, value[1])
		}
	}
	return all
}

// highest returns the tags that Flux may take: those with the highest version in the range.
func highest(tags []string, constraint *semver.Constraints, filter *regexp.Regexp, chart bool) []string {
	var candidates []string
	for _, tag := range tags {
		if !filter.MatchString(tag) {
			continue
		}
		if chart {
			tag = strings.ReplaceAll(tag, "_", "+")
		}
		candidates = append(candidates, tag)
	}
	sorted := version.Sort(constraint, candidates)
	var found []string
	for _, tag := range sorted {
		if semver.MustParse(tag).Equal(semver.MustParse(sorted[0])) {
			if chart {
				tag = strings.ReplaceAll(tag, "+", "_")
			}
			found = append(found, tag)
		}
	}
	return found
}

// TestVersionsAsFlux collects ranges, filters and tags from Flux's tests and documentation. It
// tries every range and filter on all tags. Lanyard must take the tag that Flux takes, and refuse
// what Flux refuses.
func TestVersionsAsFlux(t *testing.T) {
	all := versions(t)
	var tags, ranges []string
	filters := []string{""}
	for _, s := range all {
		constraint, err := semver.NewConstraint(s)
		if ours := (oci.Reference{SemVer: s}).Validate(); s != "" && (err == nil) != (ours == nil) {
			t.Errorf("range %q: Lanyard says %v, Flux %v", s, ours, err)
		} else if s != "" && constraint != nil {
			ranges = append(ranges, s)
		}
		_, err = regexp.Compile(s)
		if ours := (oci.Reference{SemVer: "*", SemVerFilter: s}).Validate(); (err == nil) != (ours == nil) {
			t.Errorf("filter %q: Lanyard says %v, Flux %v", s, ours, err)
		} else if err == nil && strings.ContainsAny(s, `*^\`) {
			filters = append(filters, s)
		}
		if s != "" && (oci.Reference{Tag: s}).Validate() == nil {
			tags = append(tags, s)
		}
	}
	client := registry(tags).connect(t)
	for _, expression := range ranges {
		constraint, err := semver.NewConstraint(expression)
		must.Succeed(t, err)
		for _, filter := range filters {
			for _, chart := range []bool{false, true} {
				got, err := client.Resolve(t.Context(), oci.Reference{SemVer: expression, SemVerFilter: filter, Chart: chart})
				want := highest(tags, constraint, regexp.MustCompile(filter), chart)
				if (err != nil || !slices.Contains(want, got.Tag)) && (origin.CodeOf(err) != origin.CodeNoMatch || len(want) > 0) {
					t.Errorf("range %q, filter %q, chart: %t: Lanyard takes %q, %v; Flux one of %q", expression, filter, chart, got.Tag, err, want)
				}
			}
		}
	}
	t.Logf("%d ranges and %d filters on %d tags", len(ranges), len(filters), len(tags))
	if len(ranges) < 20 || len(filters) < 5 || len(tags) < 40 {
		t.Errorf("too few cases: ranges %q, filters %q, tags %q", ranges, filters, tags)
	}
}

// TestFiltersAsFlux asserts that a pattern in Lanyard's exclusion list matches the same tags as in
// Flux's filterTags. Flux's cases with the field extract are left out: only ImagePolicy has this
// field.
func TestFiltersAsFlux(t *testing.T) {
	tried := 0
	for _, row := range cases(parse(t, module(t, imageReflector), "internal/policy/filter_test.go"), "pattern") {
		if row["extract"] != nil {
			continue
		}
		tried++
		filter, err := oci.ParseExclusions(row["pattern"])
		if err != nil {
			t.Errorf("%s: %v", row["label"], err)
		}
		found := slices.DeleteFunc(slices.Clone(row["tags"]), func(tag string) bool { return !filter.Match(tag) })
		if !slices.Equal(slices.Sorted(slices.Values(found)), row["expected"]) {
			t.Errorf("%s: %q, Flux finds %q", row["label"], found, row["expected"])
		}
	}
	if tried < 2 {
		t.Errorf("only %d cases", tried)
	}
}

// scan is a test case of Flux's ImageRepository: the tags of a repository, and the tags that a scan
// finds.
type scan struct {
	name              string
	tags, list, found []string
}

// scans returns Flux's test cases. It leaves out cases about a failure of the registry, the proxy
// or the database. It also leaves out cases with tags that no registry can have.
func scans(t *testing.T) []scan {
	t.Helper()
	controllers := filepath.Join(module(t, imageReflector), "internal/controller")
	repositories := parse(t, controllers, "imagerepository_controller_test.go")
	all := []scan{}
	for _, table := range []struct {
		test ast.Node
		// the names of three fields of Flux's table: tags, exclusion list and expected tags
		tags, list, found string
		absent            []string
	}{
		{parse(t, controllers, "scan_test.go"), "versions", "exclusionList", "wantVersions", []string{v1alpha1.DefaultTagExclusion}},
		{function(t, repositories, "TestImageRepositoryReconciler_scan"), "tags", "exclusionList", "wantTags", []string{v1alpha1.DefaultTagExclusion}},
		{function(t, repositories, "TestFilterOutTags"), "tags", "patterns", "wantTags", nil},
		{function(t, repositories, "TestSortTagsAndGetLatestTags"), "tags", "", "wantLatestTags", nil},
	} {
		for _, row := range cases(table.test, table.found) {
			c := scan{name: row["name"][0], tags: row[table.tags], list: row[table.list], found: row[table.found]}
			if c.list == nil {
				c.list = table.absent
			}
			invalid := func(tag string) bool { return (oci.Reference{Tag: tag}).Validate() != nil }
			if row["wantErr"] == nil && !slices.ContainsFunc(c.tags, invalid) {
				all = append(all, c)
			}
		}
	}
	return all
}

// TestExclusionsAsFlux asserts that in each of Flux's test cases, Lanyard's scan finds the tags
// that Flux finds.
func TestExclusionsAsFlux(t *testing.T) {
	all := scans(t)
	for _, c := range all {
		exclusions, err := oci.ParseExclusions(c.list)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := registry(c.tags).connect(t).Scan(t.Context(), exclusions)
		want := slices.Sorted(slices.Values(c.found))
		slices.Reverse(want)
		if err != nil || !slices.Equal(got.Latest, want[:min(len(want), 10)]) {
			t.Errorf("%s: %+v, %v; Flux finds %q", c.name, got, err, want)
		}
	}
	if len(all) < 15 {
		t.Errorf("only %d cases: %v", len(all), all)
	}
	// Flux's tests of an invalid exclusion list use this expression.
	if _, err := oci.ParseExclusions([]string{"[="}); origin.CodeOf(err) != origin.CodeInvalidReference {
		t.Errorf("an invalid expression: %v", err)
	}
}
