package aws

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRegistryActions(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		request    string // method and target
		repository string
		actions    string
	}{
		{"GET /v2/a/b/manifests/1.0.0", "a/b", "BatchGetImage"},
		{"HEAD /v2/a/b/manifests/" + digest, "a/b", "BatchGetImage"},
		{"PUT /v2/a/b/manifests/1.0.0", "a/b", "PutImage"},
		{"DELETE /v2/a/b/manifests/" + digest, "a/b", "BatchDeleteImage"},
		{"HEAD /v2/a/b/blobs/" + digest, "a/b", "BatchCheckLayerAvailability"},
		{"GET /v2/a/b/blobs/" + digest, "a/b", "GetDownloadUrlForLayer"},
		{"POST /v2/a/b/blobs/uploads/", "a/b", "InitiateLayerUpload"},
		{"POST /v2/a/b/blobs/uploads", "a/b", "InitiateLayerUpload"},
		{"POST /v2/a/b/blobs/uploads/?digest=" + digest, "a/b", "InitiateLayerUpload,UploadLayerPart,CompleteLayerUpload"},
		{"PATCH /v2/a/b/blobs/uploads/u1", "a/b", "UploadLayerPart"},
		{"GET /v2/a/b/blobs/uploads/u1", "a/b", "UploadLayerPart"},
		{"PUT /v2/a/b/blobs/uploads/u1?digest=" + digest, "a/b", "UploadLayerPart,CompleteLayerUpload"},
		{"DELETE /v2/a/b/blobs/uploads/u1", "a/b", "UploadLayerPart"},
		{"GET /v2/a/b/tags/list?n=5", "a/b", "ListImages"},
		{"GET /v2/a/b/referrers/" + digest, "a/b", "ListImageReferrers"},
		// A repository's name may contain words of the API, such as "manifests". The name ends
		// before the last such word in the path.
		{"GET /v2/a/manifests/b/manifests/1", "a/manifests/b", "BatchGetImage"},
		{"GET /v2/a/blobs/uploads/manifests/1", "a/blobs/uploads", "BatchGetImage"},

		{"GET /v2/_catalog", "", ""},
		{"GET /v1/a/b/manifests/1", "", ""},
		{"GET /v2a/b/manifests/1", "", ""},
		{"GET /v2/manifests/1", "", ""},
		{"GET /v2/a/b/manifests/", "", ""},
		{"GET /v2/a/b/manifests", "", ""},
		{"GET /v2//a/manifests/1", "", ""},
		{"GET /v2/a//b/manifests/1", "", ""},
		{"GET /v2/a/../b/manifests/1", "", ""},
		{"GET /v2/a/./b/manifests/1", "", ""},
		{"GET /v2/a%2Fb/manifests/1", "", ""},
		{"GET /v2/A/b/manifests/1", "", ""},
		{"GET /v2/a/b/blobs/uploads/u1/u2", "", ""},
		{"GET /v2/a/b/blobs/uploads/", "", ""},
		{"GET /v2/a/b/blobs/latest", "", ""},
		{"DELETE /v2/a/b/blobs/" + digest, "", ""},
		{"POST /v2/a/b/manifests/1", "", ""},
		{"PUT /v2/a/b/tags/list", "", ""},
		{"PROPFIND /v2/a/b/manifests/1", "", ""},
	}
	for _, tt := range tests {
		method, target, _ := strings.Cut(tt.request, " ")
		got, ok := readRegistryRequest(httptest.NewRequestWithContext(t.Context(), method, target, nil))
		if ok != (tt.actions != "") {
			t.Errorf("%s: understood %t", tt.request, ok)
			continue
		}
		if ok && (got.repository != tt.repository || strings.Join(got.actions, ",") != tt.actions) {
			t.Errorf("%s: %+v", tt.request, got)
		}
	}
	for target, want := range map[string]bool{"/v2/": true, "/v2": true, "/": false, "/v2x": false} {
		got, ok := readRegistryRequest(httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
		if diff := cmp.Diff(want, ok && got.base); diff != "" {
			t.Errorf("%s is the base (-want +got): %s", target, diff)
		}
	}
}

// FuzzRegistryPath checks that the path begins with the repository that readRegistryRequest
// returns. So permissions are checked for the repository that the data plane serves.
func FuzzRegistryPath(f *testing.F) {
	f.Add("a/b/manifests/1")
	f.Add("a/../b/manifests/1")
	f.Add("a/blobs/uploads/manifests/1")
	f.Fuzz(func(t *testing.T, rest string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/v2/"+rest, nil)
		if err != nil {
			return
		}
		got, ok := readRegistryRequest(r)
		if !ok || got.base {
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/v2/"+got.repository+"/") || r.URL.EscapedPath() != r.URL.Path {
			t.Errorf("%q: repository %q", rest, got.repository)
		}
		if strings.Contains(got.repository, "..") || strings.Contains(got.repository, "//") || len(got.actions) == 0 {
			t.Errorf("%q: %+v", rest, got)
		}
	})
}
