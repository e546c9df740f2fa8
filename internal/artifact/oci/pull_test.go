package oci_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const appURL = "oci://" + registryHost + "/team/app"

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, body := range files {
		file := filepath.Join(root, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Succeed(t, os.WriteFile(file, []byte(body), 0o600))
	}
	return root
}

// TestPushAndPull pushes a folder to the distribution project's registry, and pulls it again.
func TestPushAndPull(t *testing.T) {
	n := serve(t, map[string]http.Handler{registryHost: basic(distribution(t))})
	opts := oci.Options{Auth: oci.Basic(username, password), Transport: n}
	repo := repository(t, appURL)
	created := time.Date(2026, 11, 21, 10, 0, 0, 0, time.FixedZone("CET", 3600))
	pushed, err := oci.Push(t.Context(), repo, "1.0.0", oci.Artifact{
		Path:   folder(t, map[string]string{"app.yaml": "kind: A", "photo.jpg": "x", ".git/config": "y"}),
		Ignore: archive.DefaultPatterns(), Source: "https://example.com/repo.git", Revision: "main@sha1:0123", Created: created,
		Annotations: map[string]string{"team": "a"},
	}, opts)
	must.Succeed(t, err)
	client := connect(t, n, appURL)
	resolved, err := client.Resolve(t.Context(), oci.Reference{Tag: "1.0.0"})
	must.Succeed(t, err)
	if resolved != pushed.Resolved || resolved.Revision() != "1.0.0@"+pushed.Digest {
		t.Errorf("resolved %+v, pushed %+v", resolved, pushed)
	}
	manifest, err := client.Fetch(t.Context(), resolved)
	must.Succeed(t, err)
	want := map[string]string{
		oci.AnnotationCreated: "2026-11-21T09:00:00Z", oci.AnnotationSource: "https://example.com/repo.git",
		oci.AnnotationRevision: "main@sha1:0123", "team": "a",
	}
	if !maps.Equal(manifest.Metadata, want) {
		t.Errorf("metadata %v, want %v", manifest.Metadata, want)
	}
	layer, err := manifest.Select(oci.LayerSelector{MediaType: oci.LayerMediaType})
	must.Succeed(t, err)
	stream, err := client.Open(t.Context(), layer)
	must.Succeed(t, err)
	defer stream.Close()
	var out bytes.Buffer
	sum, err := archive.Normalize(t.Context(), stream, &out, archive.Options{})
	must.Succeed(t, err)
	if sum.Files != 1 || out.Len() == 0 {
		t.Errorf("summary %+v", sum)
	}

	// Check the media types that Flux's clients look for in the registry's answer.
	raw := get(t, n, "https://"+registryHost+"/v2/team/app/manifests/1.0.0")
	var wire struct {
		MediaType string `json:"mediaType"`
		Config    struct {
			MediaType string `json:"mediaType"`
		} `json:"config"`
		Layers []struct {
			MediaType string `json:"mediaType"`
		} `json:"layers"`
	}
	must.Succeed(t, json.Unmarshal(raw, &wire))
	if wire.MediaType != "application/vnd.oci.image.manifest.v1+json" ||
		wire.Config.MediaType != "application/vnd.cncf.flux.config.v1+json" ||
		len(wire.Layers) != 1 || wire.Layers[0].MediaType != "application/vnd.cncf.flux.content.v1.tar+gzip" {
		t.Errorf("manifest %s", raw)
	}

	// Artifact.Created is not set, so pushing the packed file gives the same digest as pushing the
	// folder.
	file := filepath.Join(t.TempDir(), "app.tar.gz")
	must.Succeed(t, os.WriteFile(file, out.Bytes(), 0o600))
	a, err := oci.Push(t.Context(), repo, "1.1.0", oci.Artifact{Path: file}, opts)
	must.Succeed(t, err)
	b, err := oci.Push(t.Context(), repo, "v1.2.0-rc.1", oci.Artifact{Path: folder(t, map[string]string{"app.yaml": "kind: A"})}, opts)
	must.Succeed(t, err)
	if a.Digest != b.Digest {
		t.Errorf("equal content, digests %s and %s", a.Digest, b.Digest)
	}
	for ref, want := range map[oci.Reference]string{
		{SemVer: ">=1.0.0"}:   "1.1.0@" + a.Digest,
		{SemVer: ">=1.0.0-0"}: "v1.2.0-rc.1@" + b.Digest,
		{SemVer: "*-0", SemVerFilter: `-rc\.`, Tag: "1.0.0"}:       "v1.2.0-rc.1@" + b.Digest,
		{Digest: pushed.Digest, SemVer: ">=1.0.0", Tag: "nothing"}: pushed.Digest,
		{SemVer: "~1.0", Tag: "v1.2.0-rc.1"}:                       "1.0.0@" + pushed.Digest,
	} {
		got, err := client.Resolve(t.Context(), ref)
		if err != nil || got.Revision() != want {
			t.Errorf("%+v: %s, %v; want %s", ref, got.Revision(), err, want)
		}
	}
	for ref, want := range map[oci.Reference]origin.Code{
		{}:                                 origin.CodeTagNotFound,
		{Tag: "none"}:                      origin.CodeTagNotFound,
		{Digest: digestOf("nothing")}:      origin.CodeTagNotFound,
		{SemVer: ">=2"}:                    origin.CodeNoMatch,
		{SemVer: "*", SemVerFilter: "^x$"}: origin.CodeNoMatch,
	} {
		_, err := client.Resolve(t.Context(), ref)
		if origin.CodeOf(err) != want {
			t.Errorf("%+v: %v, want %s", ref, err, want)
		}
	}
	none := connect(t, n, "oci://"+registryHost+"/team/none")
	if _, err := none.Resolve(t.Context(), oci.Reference{SemVer: "*"}); origin.CodeOf(err) != origin.CodeNotFound {
		t.Errorf("missing repository: %v", err)
	}
	if _, err := client.Open(t.Context(), oci.Layer{Digest: digestOf("no layer"), Size: 1}); origin.CodeOf(err) != origin.CodeBlobNotFound {
		t.Errorf("missing layer: %v", err)
	}
}

func get(t *testing.T, n http.RoundTripper, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
	req.SetBasicAuth(username, password)
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json")
	resp, err := n.RoundTrip(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return body
}

func TestPushRefuses(t *testing.T) {
	// Tests of other packages push at the same time, and write temporary files to the default
	// folder. So this test has its own folder, in which it looks for leftovers.
	t.Setenv("TMPDIR", t.TempDir())
	n := serve(t, map[string]http.Handler{registryHost: basic(distribution(t))})
	good := oci.Options{Auth: oci.Basic(username, password), Transport: n}
	bad := oci.Options{Auth: oci.Basic(username, "wrong-password"), Transport: n}
	path := folder(t, map[string]string{"a": "1"})
	notTar := filepath.Join(t.TempDir(), "a.tar.gz")
	must.Succeed(t, os.WriteFile(notTar, []byte("\x1f\x8bnot a tar"), 0o600))
	if _, err := oci.Push(t.Context(), repository(t, appURL), "a/b", oci.Artifact{Path: path}, good); origin.CodeOf(err) != origin.CodeInvalidReference {
		t.Errorf("bad tag: %v", err)
	}
	if _, err := oci.Push(t.Context(), repository(t, appURL), "", oci.Artifact{Path: path}, good); origin.CodeOf(err) != origin.CodeInvalidReference {
		t.Errorf("no tag: %v", err)
	}
	if _, err := oci.Push(t.Context(), repository(t, appURL), "a", oci.Artifact{Path: notTar}, good); archive.ReasonOf(err) != archive.ReasonCorrupt {
		t.Errorf("not a tar: %v", err)
	}
	_, err := oci.Push(t.Context(), repository(t, appURL), "a", oci.Artifact{Path: path}, bad)
	if origin.CodeOf(err) != origin.CodeUnauthorized {
		t.Fatalf("wrong password: %v", err)
	}
	noSecret(t, err, "wrong-password")
	leftovers, err := filepath.Glob(filepath.Join(os.TempDir(), "lanyard-push-*"))
	if err != nil || len(leftovers) > 0 {
		t.Errorf("temporary files stay: %v, %v", leftovers, err)
	}
}

func TestFetchOfIndex(t *testing.T) {
	f, child := artifact("layer")
	index := func(entries ...string) string {
		body := `{"schemaVersion":2,"manifests":[` + strings.Join(entries, ",") + `]}`
		f.manifests["latest"], f.manifests[digestOf(body)] = body, body
		f.types = map[string]string{digestOf(body): "application/vnd.oci.image.index.v1+json"}
		return digestOf(body)
	}
	entry := func(digest, platform string) string {
		return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":%q%s}`, digest, platform)
	}
	other := digestOf("other")
	n := serve(t, map[string]http.Handler{registryHost: f})
	client := connect(t, n, appURL)
	for name, c := range map[string]struct {
		entries []string
		code    origin.Code
	}{
		"linux/amd64": {[]string{entry(other, `,"platform":{"os":"linux","architecture":"arm64"}`), entry(child, `,"platform":{"os":"linux","architecture":"amd64"}`)}, ""},
		"no platform": {[]string{entry(child, "")}, ""},
		"only one":    {[]string{entry(child, `,"platform":{"os":"plan9","architecture":"mips"}`)}, ""},
		"none fits":   {[]string{entry(child, `,"platform":{"os":"linux","architecture":"arm64"}`), entry(other, `,"platform":{"os":"plan9","architecture":"mips"}`)}, origin.CodeUnsupportedMediaType},
		"empty":       {nil, origin.CodeUnsupportedMediaType},
		"gone":        {[]string{entry(other, "")}, origin.CodeTagNotFound},
	} {
		digest := index(c.entries...)
		resolved, err := client.Resolve(t.Context(), oci.Reference{})
		if err != nil || resolved.Digest != digest {
			t.Fatalf("%s: %v, %v", name, resolved, err)
		}
		m, err := client.Fetch(t.Context(), resolved)
		if origin.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", name, err, c.code)
		}
		if err == nil && (m.Digest != digest || len(m.Layers) != 1 || m.Metadata["a"] != "1") {
			t.Errorf("%s: %+v", name, m)
		}
	}
	// An index in an index is refused.
	inner := index(entry(child, ""))
	outer := index(entry(inner, ""))
	f.types[inner] = "application/vnd.oci.image.index.v1+json"
	if _, err := client.Fetch(t.Context(), oci.Resolved{Digest: outer}); origin.CodeOf(err) != origin.CodeUnsupportedMediaType {
		t.Errorf("nested index: %v", err)
	}
}

func TestSelect(t *testing.T) {
	m := &oci.Manifest{Layers: []oci.Layer{{MediaType: "a", Size: 1}, {MediaType: "b", Size: 2}, {MediaType: "b", Size: 3}, {MediaType: "c+zstd"}}}
	for _, c := range []struct {
		selector oci.LayerSelector
		size     int64
		code     origin.Code
	}{
		{oci.LayerSelector{}, 1, ""},
		{oci.LayerSelector{MediaType: "b", Operation: oci.Copy}, 2, ""},
		{oci.LayerSelector{MediaType: "B"}, 0, origin.CodeUnsupportedMediaType},
		{oci.LayerSelector{MediaType: "c+zstd"}, 0, origin.CodeUnsupportedMediaType},
		{oci.LayerSelector{Operation: "run"}, 0, origin.CodeInvalidReference},
	} {
		layer, err := m.Select(c.selector)
		if origin.CodeOf(err) != c.code || layer.Size != c.size {
			t.Errorf("%+v: %+v, %v", c.selector, layer, err)
		}
	}
	if _, err := (&oci.Manifest{}).Select(oci.LayerSelector{}); origin.CodeOf(err) != origin.CodeUnsupportedMediaType {
		t.Errorf("no layers: %v", err)
	}
}

func TestMetadataIsBounded(t *testing.T) {
	f, _ := artifact("layer")
	body := fmt.Sprintf(`{"schemaVersion":2,"layers":[],"annotations":{"a":"1","b":%q,"c":%q}}`, strings.Repeat("x", 15<<10), strings.Repeat("y", 15<<10))
	f.manifests[digestOf(body)] = body
	client := connect(t, serve(t, map[string]http.Handler{registryHost: f}), appURL)
	m, err := client.Fetch(t.Context(), oci.Resolved{Digest: digestOf(body)})
	must.Succeed(t, err)
	if len(m.Metadata) != 2 || m.Metadata["c"] != "" {
		t.Errorf("%d annotations are kept", len(m.Metadata))
	}
}

func TestErrorsAreTyped(t *testing.T) {
	var e *origin.Error
	_, err := oci.ParseURL("http://x")
	if !errors.As(err, &e) || e.Field != "spec.url" || e.Fix == "" {
		t.Errorf("%+v", err)
	}
	if origin.CodeOf(errors.New("x")) != "" {
		t.Error("a foreign error has a code")
	}
}

// TestVersionsAreReadAsFluxReadsThem checks which tag a range selects from each list of tags.
func TestVersionsAreReadAsFluxReadsThem(t *testing.T) {
	for name, c := range map[string]struct {
		tags  []string
		rang  string
		chart bool
		want  string // empty: no tag
	}{
		"leading zeros":             {tags: []string{"2024.01.15", "2023.12.31", "latest"}, rang: ">=2024", want: "2024.01.15"},
		"leading zero at the front": {tags: []string{"01.2.3", "1.2.2"}, rang: "1.x", want: "01.2.3"},
		"leading v":                 {tags: []string{"v1.2.3", "1.2.2"}, rang: "1.x", want: "v1.2.3"},
		"prerelease of a calendar":  {tags: []string{"v2025.02.03-rc.1"}, rang: ">=2025-0", want: "v2025.02.03-rc.1"},
		"two numbers are none":      {tags: []string{"1.2", "1", "1.1.0"}, rang: "1.x", want: "1.1.0"},
		"underscore of a chart":     {tags: []string{"6.1.0", "6.2.0_build.1"}, rang: "6.x", chart: true, want: "6.2.0_build.1"},
		"underscore of no chart":    {tags: []string{"6.1.0", "6.2.0_build.1"}, rang: "6.x", want: "6.1.0"},
		"none":                      {tags: []string{"main-2024.01.15", "1.2.3.4"}, rang: "*"},
	} {
		f, digest := artifact("layer")
		for _, tag := range c.tags {
			f.manifests[tag] = f.manifests["latest"]
		}
		f.override = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/tags/list") {
				return false
			}
			writeTags(w, "", c.tags...)
			return true
		}
		client := connect(t, serve(t, map[string]http.Handler{registryHost: f}), appURL)
		got, err := client.Resolve(t.Context(), oci.Reference{SemVer: c.rang, Chart: c.chart})
		if c.want == "" {
			if origin.CodeOf(err) != origin.CodeNoMatch {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			continue
		}
		if err != nil || got.Revision() != c.want+"@"+digest {
			t.Errorf("%s: %v, %v; want %s", name, got, err, c.want)
		}
	}
}
