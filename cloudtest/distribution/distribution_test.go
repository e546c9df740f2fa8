package distribution_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/distribution"
)

func TestRead(t *testing.T) {
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for request, want := range map[string]string{
		"GET /v2":                                      "Ping ",
		"GET /v2/":                                     "Ping ",
		"HEAD /v2/":                                    "Ping ",
		"POST /v2/":                                    "",
		"GET /v2/_catalog":                             "Catalog ",
		"DELETE /v2/_catalog":                          "",
		"GET /v2/a/b/tags/list":                        "ListTags a/b",
		"POST /v2/a/b/tags/list":                       "",
		"GET /v2/a/manifests/1.0.0":                    "ReadManifest a",
		"HEAD /v2/a/manifests/" + digest:               "ReadManifest a",
		"PUT /v2/a/manifests/1.0.0":                    "WriteManifest a",
		"DELETE /v2/a/manifests/1.0.0":                 "DeleteManifest a",
		"PATCH /v2/a/manifests/1.0.0":                  "",
		"GET /v2/a/manifests/":                         "",
		"HEAD /v2/a/b/c/blobs/" + digest:               "StatBlob a/b/c",
		"GET /v2/a/b/c/blobs/" + digest:                "ReadBlob a/b/c",
		"DELETE /v2/a/blobs/" + digest:                 "",
		"GET /v2/a/blobs/latest":                       "",
		"POST /v2/a/blobs/uploads":                     "StartUpload a",
		"POST /v2/a/blobs/uploads/":                    "StartUpload a",
		"POST /v2/a/blobs/uploads/?mount=x&from=b":     "StartUpload a",
		"POST /v2/a/blobs/uploads/?digest=" + digest:   "UploadBlob a",
		"GET /v2/a/blobs/uploads/":                     "",
		"PATCH /v2/a/blobs/uploads/u-1":                "ContinueUpload a",
		"GET /v2/a/blobs/uploads/u-1":                  "ContinueUpload a",
		"DELETE /v2/a/blobs/uploads/u-1":               "ContinueUpload a",
		"PUT /v2/a/blobs/uploads/u-1?digest=" + digest: "FinishUpload a",
		"POST /v2/a/blobs/uploads/u-1":                 "",
		"GET /v2/a/referrers/" + digest:                "ListReferrers a",
		"GET /v2/a/other/" + digest:                    "",
		"GET /v2/A/manifests/1":                        "",
		"GET /v2/a%2fb/manifests/1":                    "",
		"GET /v2/a//b/manifests/1":                     "",
		"GET /v2/a/../b/manifests/1":                   "",
		"GET /v2/a/manifests/..":                       "",
		"GET /v2/./a/manifests/1":                      "",
		"GET /v2//manifests/1":                         "",
		"GET /v2/manifests/1":                          "",
		"GET /v1/a/manifests/1":                        "",
		"GET /v2/a__b/c-d/e.f/manifests/1":             "ReadManifest a__b/c-d/e.f",
	} {
		method, target, _ := strings.Cut(request, " ")
		got, ok := distribution.Read(httptest.NewRequest(method, target, nil))
		text := ""
		if ok {
			text = string(got.Operation) + " " + got.Repository
		}
		if text != want {
			t.Errorf("%s: %q, want %q", request, text, want)
		}
	}
}

// TestCleared holds that a data plane sees neither credentials nor a mount.
func TestCleared(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/v2/a/blobs/uploads/?mount=sha256:x&from=other/repo&keep=1", nil)
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("X-Forwarded-Host", "attacker.example")
	got := distribution.Cleared(r)
	if got.Header.Get("Authorization") != "" || got.Header.Get("X-Forwarded-Host") != "" || got.Header.Get("X-Forwarded-Proto") != "https" {
		t.Errorf("header %v", got.Header)
	}
	if got.URL.RawQuery != "keep=1" || strings.Contains(got.RequestURI, "mount") {
		t.Errorf("URL %s, %s", got.URL, got.RequestURI)
	}
	if r.Header.Get("Authorization") == "" || !r.URL.Query().Has("mount") {
		t.Error("the original was changed")
	}
}

// FuzzRead holds that a repository that was judged is the one that stands in the path, letter by letter, and cannot be left through it.
func FuzzRead(f *testing.F) {
	for _, path := range []string{"/v2/", "/v2/a/b/manifests/1", "/v2/a/blobs/uploads/x", "/v2/a%2f../b/tags/list", "/v2/a/manifests/../../b/manifests/1"} {
		f.Add("GET", path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		got, ok := distribution.Read(&http.Request{Method: method, URL: u})
		if !ok || got.Repository == "" {
			return
		}
		if !distribution.IsName(got.Repository) || !strings.HasPrefix(u.EscapedPath(), "/v2/"+got.Repository+"/") {
			t.Errorf("%s %s: %+v", method, path, got)
		}
		if slices.Contains(strings.Split(u.EscapedPath(), "/"), "..") {
			t.Errorf("%s %s leads elsewhere: %+v", method, path, got)
		}
	})
}
