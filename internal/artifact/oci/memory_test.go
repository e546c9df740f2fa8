//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package oci_test

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// oneManifest answers every request for a manifest with its body.
type oneManifest struct{ body, mediaType string }

func (o oneManifest) RoundTrip(req *http.Request) (*http.Response, error) {
	header, body := http.Header{}, ""
	if strings.Contains(req.URL.Path, "/manifests/") {
		header.Set("Content-Type", o.mediaType)
		body = o.body
	}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// allocated returns how many bytes, including garbage, are allocated to read the body as a manifest
// and as an index.
func allocated(t *testing.T, body string) map[types.MediaType]int64 {
	t.Helper()
	taken := map[types.MediaType]int64{}
	for _, mediaType := range []types.MediaType{types.OCIManifestSchema1, types.OCIImageIndex} {
		client, err := oci.Connect(t.Context(), repository(t, appURL), oci.Options{Transport: oneManifest{body, string(mediaType)}})
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = client.Get(t.Context(), oci.Reference{Tag: "1"})
		runtime.ReadMemStats(&after)
		taken[mediaType] = int64(after.TotalAlloc - before.TotalAlloc)
	}
	return taken
}

// maxReading bounds the bytes allocated to read any manifest of four megabytes. Garbage counts too,
// so it does not matter when the garbage collector runs.
const maxReading = 128 << 20

func hostileManifests() map[string]string {
	fill := func(before, part, after string) string {
		return before + strings.Repeat(part, (oci.MaxManifestBytes-len(before)-len(after))/len(part)) + after
	}
	return map[string]string{
		"layers":                  fill(`{"layers":[`, `{},`, `{}]}`),
		"images":                  fill(`{"manifests":[`, `{},`, `{}]}`),
		"layers after a number":   fill(`{"x":1e999,"layers":[`, `{},`, `{}]}`),
		"platforms":               fill(`{"manifests":[`, `{"platform":{}},`, `{}]}`),
		"URLs":                    fill(`{"layers":[{"urls":[`, `"",`, `""]}]}`),
		"annotations":             fill(`{"annotations":{`, `"a":"",`, `"":""}}`),
		"one text":                fill(`{"annotations":{"a":"`, `\u00e9`, `"}}`),
		"many texts":              fill(`{"annotations":{"":"`, strings.Repeat("x", 100)+`","`, `":""}}`),
		"depth":                   fill(``, `[`, ``),
		"spaces":                  fill(`{`, ` `, `}`),
		"as many layers as fit":   `{"layers":[` + strings.Repeat(`{},`, 24_990) + `{}]}`,
		"as many images as fit":   `{"manifests":[` + strings.Repeat(`{},`, 24_990) + `{}]}`,
		"as many nulls as fit":    `{"layers":[` + strings.Repeat(`null,`, 49_990) + `null]}`,
		"layers given many times": fill(`{`, `"layers":[{},{},{},{},{},{},{},{}],`, `"layers":[]}`),
	}
}

// TestMemoryOfHostileManifests checks that reading a manifest allocates at most maxReading bytes,
// whatever the manifest contains.
func TestMemoryOfHostileManifests(t *testing.T) {
	for name, body := range hostileManifests() {
		for mediaType, n := range allocated(t, body) {
			if n > maxReading {
				t.Errorf("%s as %s: %d MiB", name, mediaType, n>>20)
			}
		}
	}
}

// FuzzMemoryOfManifests fills a manifest with copies of the fuzzer's short input, so that any
// excessive use of memory is multiplied.
func FuzzMemoryOfManifests(f *testing.F) {
	for _, seed := range []struct{ before, part, after string }{
		{`{"layers":[`, `{},`, `{}]}`},
		{`{"x":1e999,"manifests":[`, `{},`, `{}]}`},
		{`{"annotations":{`, `"a":"\"",`, `"":""}}`},
		{`{"x":"\""}{"layers":[`, `null,`, `{}]}`},
		{`{"layers":[{"annotations":{`, `"\u0000":"",`, `"":""}}]}`},
	} {
		f.Add(seed.before, seed.part, seed.after)
	}
	f.Fuzz(func(t *testing.T, before, part, after string) {
		body := before + strings.Repeat(part, oci.MaxManifestBytes/max(len(part), 1)) + after
		for mediaType, n := range allocated(t, body[:min(len(body), oci.MaxManifestBytes)]) {
			if n > maxReading {
				t.Errorf("%s: %d MiB", mediaType, n>>20)
			}
		}
	})
}
