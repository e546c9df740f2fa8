package oci_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/oci"
)

func TestRead(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for request, want := range map[string]oci.Request{
		"GET /v2":                       {Kind: oci.Ping},
		"HEAD /v2/":                     {Kind: oci.Ping},
		"GET /v2/p/r/app/manifests/1.0": {Kind: oci.PullManifest, Repository: "p/r/app"},
		"GET /v2/example.com/p/r/app/manifests/1.0":              {Kind: oci.PullManifest, Repository: "example.com/p/r/app"},
		"PUT /v2/p/r/app/manifests/1.0":                          {Kind: oci.PushManifest, Repository: "p/r/app"},
		"DELETE /v2/p/r/app/manifests/1.0":                       {Kind: oci.DeleteManifest, Repository: "p/r/app"},
		"HEAD /v2/p/r/app/blobs/" + digest:                       {Kind: oci.CheckBlob, Repository: "p/r/app"},
		"GET /v2/p/r/app/blobs/" + digest:                        {Kind: oci.PullBlob, Repository: "p/r/app"},
		"POST /v2/p/r/app/blobs/uploads/":                        {Kind: oci.StartUpload, Repository: "p/r/app"},
		"POST /v2/p/r/app/blobs/uploads/?digest=x":               {Kind: oci.PushBlob, Repository: "p/r/app"},
		"PATCH /v2/p/r/app/blobs/uploads/u":                      {Kind: oci.ContinueUpload, Repository: "p/r/app"},
		"PUT /v2/p/r/app/blobs/uploads/u":                        {Kind: oci.FinishUpload, Repository: "p/r/app"},
		"GET /v2/p/r/app/tags/list":                              {Kind: oci.ListTags, Repository: "p/r/app"},
		"GET /v2/p/r/app/referrers/" + digest:                    {Kind: oci.ListReferrers, Repository: "p/r/app"},
		"GET /v2/p/manifests/x/manifests/1.0":                    {Kind: oci.PullManifest, Repository: "p/manifests/x"},
		"POST /v2/":                                              {},
		"GET /v2x":                                               {},
		"GET /v2/_catalog":                                       {},
		"GET /v2/p/../q/manifests/1":                             {},
		"GET /v2/p/manifests/..":                                 {},
		"PATCH /v2/p/blobs/uploads/..":                           {},
		"GET /v2/p//q/manifests/1":                               {},
		"GET /v2/p%2Fq/manifests/1":                              {},
		"POST /v2/p/blobs/uploads/?mount=x;from=q":               {},
		"POST /v2/p/blobs/uploads/?mount=x&from=q&%zz":           {},
		"GET /v2/" + strings.Repeat("a/", 128) + "b/manifests/1": {},
	} {
		method, target, _ := strings.Cut(request, " ")
		if got := oci.Read(httptest.NewRequestWithContext(t.Context(), method, target, nil)); got != want {
			t.Errorf("%s: %+v, want %+v", request, got, want)
		}
	}
}

// TestForward checks that a data plane gets no credentials, and no mount parameter in the query or
// in a form.
func TestForward(t *testing.T) {
	const form = "mount=sha256:0&from=b"
	const multipart = "--b\r\nContent-Disposition: form-data; name=\"mount\"\r\n\r\nx\r\n--b--\r\n"
	for _, tt := range []struct {
		name, target, contentType, body, uri, passed string
	}{
		{"mount", "/v2/a/blobs/uploads/?" + form + "&x=y", "", "", "/v2/a/blobs/uploads/?x=y", ""},
		{"mount in a form", "/v2/a/blobs/uploads/", "application/x-www-form-urlencoded", form, "/v2/a/blobs/uploads/", "application/octet-stream"},
		{"mount in a multipart form", "/v2/a/blobs/uploads/", "multipart/form-data; boundary=b", multipart, "/v2/a/blobs/uploads/", "application/octet-stream"},
		{"blob", "/v2/a/blobs/uploads/?digest=sha256:0", "application/octet-stream", "x", "/v2/a/blobs/uploads/?digest=sha256:0", "application/octet-stream"},
		{"manifest", "/v2/a/manifests/1", "application/vnd.oci.image.manifest.v1+json", "{}", "/v2/a/manifests/1", "application/vnd.oci.image.manifest.v1+json"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.target, strings.NewReader(tt.body))
		r.Header.Set("Authorization", "x")
		if tt.contentType != "" {
			r.Header.Set("Content-Type", tt.contentType)
		}
		r = oci.Forwarded(r)
		if r.FormValue("mount") != "" || r.FormValue("from") != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s: %v %v", tt.name, r.Form, r.Header)
		}
		if r.RequestURI != tt.uri || r.Header.Get("Content-Type") != tt.passed {
			t.Errorf("%s: %s %v", tt.name, r.RequestURI, r.Header)
		}
	}
}

func TestReads(t *testing.T) {
	for kind, want := range map[oci.Kind]bool{
		oci.Unknown: false, oci.Ping: true, oci.PullManifest: true, oci.PushManifest: false, oci.DeleteManifest: false, oci.CheckBlob: true, oci.PullBlob: true,
		oci.StartUpload: false, oci.PushBlob: false, oci.ContinueUpload: false, oci.FinishUpload: false, oci.ListTags: true, oci.ListReferrers: true,
	} {
		if got := kind.Reads(); got != want {
			t.Errorf("%d: %t", kind, got)
		}
	}
}

// FuzzRead checks requests for which Read returns a repository. The undecoded path must begin with
// /v2/<repository>/ and must have no segment "..".
func FuzzRead(f *testing.F) {
	for _, path := range []string{"/v2/", "/v2/a/b/manifests/1", "/v2/a/blobs/uploads/x", "/v2/a%2f../b/tags/list", "/v2/a/manifests/../../b/manifests/1", "/v2/a/blobs/uploads/?mount=b;from=c"} {
		f.Add(http.MethodGet, path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		got := oci.Read(&http.Request{Method: method, URL: u})
		if (got.Repository == "") != (got.Kind == oci.Unknown || got.Kind == oci.Ping) {
			t.Errorf("%s %s: %+v", method, path, got)
		}
		if got.Repository == "" {
			return
		}
		if !oci.IsName(got.Repository) || !strings.HasPrefix(u.EscapedPath(), "/v2/"+got.Repository+"/") || slices.Contains(strings.Split(u.EscapedPath(), "/"), "..") {
			t.Errorf("%s %s: %+v", method, path, got)
		}
	})
}
