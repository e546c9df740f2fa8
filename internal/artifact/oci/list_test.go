package oci_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestList checks the order of a list, and which tags are selected.
func TestList(t *testing.T) {
	signature := "sha256-" + strings.Repeat("0", 64) + ".sig"
	tags := []string{"latest", "1.9.0", "v1.10.0", "1.10.0-rc.1", "1.10.0-rc.0", "1.10", "01.2.3", "main", signature, "0.1.0", "1.10.0", "latest"}
	n := serve(t, map[string]http.Handler{registryHost: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			_, _ = io.WriteString(w, "{}")
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "team/app", "tags": tags})
	})})
	client, err := oci.Connect(t.Context(), repository(t, appURL), oci.Options{Transport: n})
	must.Succeed(t, err)
	for name, tt := range map[string]struct {
		selection oci.TagSelection
		want      []string
	}{
		"all":         {oci.TagSelection{}, []string{"v1.10.0", "1.10.0", "1.10.0-rc.1", "1.10.0-rc.0", "1.9.0", "01.2.3", "0.1.0", "main", "latest", "1.10"}},
		"signatures":  {oci.TagSelection{Signatures: true, Pattern: `^sha256-`}, []string{signature}},
		"range":       {oci.TagSelection{SemVer: ">=1.0.0"}, []string{"v1.10.0", "1.10.0", "1.9.0", "01.2.3"}},
		"prereleases": {oci.TagSelection{SemVer: ">=1.10.0-0"}, []string{"v1.10.0", "1.10.0", "1.10.0-rc.1", "1.10.0-rc.0"}},
		"pattern":     {oci.TagSelection{Pattern: `^v|^m`}, []string{"v1.10.0", "main"}},
		"both":        {oci.TagSelection{SemVer: "*", Pattern: `^v`}, []string{"v1.10.0"}},
		"none":        {oci.TagSelection{SemVer: ">9"}, []string{}},
	} {
		filter, err := tt.selection.Filter()
		must.Succeed(t, err)
		if got, err := client.List(t.Context(), filter); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tt.want)
		}
	}
	for name, selection := range map[string]oci.TagSelection{
		"no range": {SemVer: "one"}, "long range": {SemVer: strings.Repeat("1", 1000)}, "no pattern": {Pattern: "("}, "large pattern": {Pattern: `\pL{999}\pL{999}\pL{999}`},
	} {
		if _, err := selection.Filter(); origin.CodeOf(err) != origin.CodeInvalidReference || !strings.Contains(err.Error(), "--filter-") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParseArtifact checks the forms in which users may write an artifact.
func TestParseArtifact(t *testing.T) {
	digest := digestOf("x")
	for text, want := range map[string]struct {
		repository string
		reference  oci.Reference
	}{
		"oci://a.example/b":                  {"oci://a.example/b", oci.Reference{}},
		"oci://a.example/b:1.0.0":            {"oci://a.example/b", oci.Reference{Tag: "1.0.0"}},
		"oci://a.example:5000/b/c:x":         {"oci://a.example:5000/b/c", oci.Reference{Tag: "x"}},
		"oci://a.example:5000/b":             {"oci://a.example:5000/b", oci.Reference{}},
		"oci://127.0.0.1:5000/b@" + digest:   {"oci://127.0.0.1:5000/b", oci.Reference{Digest: digest}},
		"oci://[::1]:5000/b:x":               {"oci://[::1]:5000/b", oci.Reference{Tag: "x"}},
		"oci://A.example/b:X":                {"oci://a.example/b", oci.Reference{Tag: "X"}},
		"oci://a.example/deep/er/b__c/d-e:1": {"oci://a.example/deep/er/b__c/d-e", oci.Reference{Tag: "1"}},
	} {
		repository, reference, err := oci.ParseArtifact(text)
		if err != nil || repository.String() != want.repository || reference != want.reference {
			t.Errorf("%s: %v %+v, %v", text, repository, reference, err)
		}
	}
	for _, text := range []string{
		"", "oci://", "a.example/b", "https://a.example/b", "oci://a.example", "oci://a.example:5000", "oci://a.example/b:", "oci://a.example/b:x/y",
		"oci://a.example/b:x:y", "oci://a.example/b:x@" + digest, "oci://a.example/b@sha512:00", "oci://a.example/b@" + digest[:20],
		"oci://a.example@" + digest, "oci://a.example/b@", "oci://a.example/B", "oci://a.example/b?x=y", "oci://a.example/b:" + strings.Repeat("x", 129),
		"oci://user:topsecret@a.example/b:1", "oci://user:topsecret@a.example/b", "oci://user@a.example/b@" + digest, "oci://a.example/../b",
	} {
		repository, reference, err := oci.ParseArtifact(text)
		if code := origin.CodeOf(err); code != origin.CodeInvalidURL {
			t.Errorf("%q: %v %+v, %v", text, repository, reference, err)
			continue
		}
		if strings.Contains(err.Error(), "topsecret") || strings.Contains(err.Error(), "spec.") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestListAsksForAll checks the requests for a list. A registry that sends all tags in one answer
// gets one request. A registry that sends pages is asked for large pages.
func TestListAsksForAll(t *testing.T) {
	want := numbered(0, 2500)
	for name, tt := range map[string]struct {
		// small is the number of tags on a page, unless the query asks for another number with the
		// parameter n. If small is 0, one page has all tags.
		small   int
		queries []string
	}{
		"Distribution":            {0, []string{""}},
		"a hundred, as ECR sends": {100, []string{"", "n=1000", "last=1000&n=1000", "last=2000&n=1000"}},
	} {
		var queries []string
		n := serve(t, map[string]http.Handler{registryHost: &lister{page: func(w http.ResponseWriter, r *http.Request, _ int) {
			queries = append(queries, r.URL.RawQuery)
			from, _ := strconv.Atoi(r.URL.Query().Get("last"))
			size := tt.small
			if size > 0 && r.URL.Query().Has("n") {
				size, _ = strconv.Atoi(r.URL.Query().Get("n"))
			}
			if size == 0 || from+size >= len(want) {
				writeTags(w, "", want[from:]...)
				return
			}
			writeTags(w, fmt.Sprintf("/v2/team/app/tags/list?last=%d&n=%d", from+size, size), want[from:from+size]...)
		}}})
		got, err := connect(t, n, appURL).List(t.Context(), oci.TagFilter{})
		slices.Reverse(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d tags, %v", name, len(got), err)
		}
		if !slices.Equal(queries, tt.queries) {
			t.Errorf("%s: asked %q, want %q", name, queries, tt.queries)
		}
	}
}

// TestIsTag compares IsTag with the specification's own pattern.
func TestIsTag(t *testing.T) {
	pattern := regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	texts := []string{"", "1.0.0", "V1_x-y.z", strings.Repeat("x", 128), strings.Repeat("x", 129), "é", "a\n", "a b"}
	for b := range 256 {
		texts = append(texts, string([]byte{byte(b)}), string([]byte{'a', byte(b)}), string([]byte{'a', byte(b), 'z'}))
	}
	for _, text := range texts {
		if oci.IsTag(text) != pattern.MatchString(text) {
			t.Errorf("%q is a tag: %v", text, oci.IsTag(text))
		}
	}
}
