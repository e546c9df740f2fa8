package gcp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestReadStorage(t *testing.T) {
	host := endpoint{service: ServiceStorage, universe: DefaultUniverse}
	for request, want := range map[string]storageRequest{
		"GET /storage/v1/b/bucket":                    {bucket: "bucket", permission: permBucketGet},
		"GET /storage/v1/b/bucket/o?delimiter=/":      {bucket: "bucket", permission: permObjectList},
		"GET /storage/v1/b/bucket/o/a%2Fb":            {bucket: "bucket", object: "a/b", permission: permObjectGet},
		"GET /download/storage/v1/b/bucket/o/a":       {bucket: "bucket", object: "a", permission: permObjectGet},
		"DELETE /storage/v1/b/bucket/o/a":             {bucket: "bucket", object: "a", permission: permObjectDelete},
		"PATCH /storage/v1/b/bucket/o/a":              {bucket: "bucket", object: "a", permission: permObjectUpdate},
		"POST /upload/storage/v1/b/bucket/o":          {bucket: "bucket", permission: permObjectCreate},
		"PUT /resumable/upload/storage/v1/b/bucket/o": {bucket: "bucket", permission: permObjectCreate},
		"GET /bucket":                      {xml: true, bucket: "bucket", permission: permObjectList},
		"GET /bucket/":                     {xml: true, bucket: "bucket", permission: permObjectList},
		"HEAD /bucket":                     {xml: true, bucket: "bucket", permission: permBucketGet},
		"HEAD /bucket/a/b":                 {xml: true, bucket: "bucket", object: "a/b", permission: permObjectGet},
		"GET /bucket/a//b":                 {xml: true, bucket: "bucket", object: "a//b", permission: permObjectGet},
		"PUT /bucket/a":                    {xml: true, bucket: "bucket", object: "a", permission: permObjectCreate},
		"DELETE /bucket/a":                 {xml: true, bucket: "bucket", object: "a", permission: permObjectDelete},
		"GET /storage/v1/b":                {},
		"POST /storage/v1/b":               {},
		"DELETE /storage/v1/b/bucket":      {},
		"GET /storage/v1/b/bucket/iam":     {},
		"GET /storage/v1/b/bucket/o/a/acl": {},
		"POST /storage/v1/b/bucket/o/a/copyTo/b/other/o/a":   {},
		"GET /storage/v1/b/BUCKET/o":                         {},
		"GET /storage/v1/x/b/bucket/o":                       {},
		"DELETE /download/storage/v1/b/bucket/o/a":           {},
		"GET /storage/v1/b/bucket/o/..%2F..%2Fother%2Fo%2Fa": {},
		"GET /storage/v1/b/bucket/../other/o/a":              {},
		"GET /":                                              {xml: true},
		"PUT /bucket":                                        {xml: true},
		"POST /bucket/a?uploads":                             {xml: true},
		"GET /bucket?policy":                                 {xml: true},
		"GET /bucket/./a":                                    {xml: true},
		"GET //bucket/a":                                     {xml: true},
		"GET /storage/x":                                     {xml: true},
		"GET /upload":                                        {xml: true},
		"GET /%73torage/v1/b/bucket/o/a":                     {xml: true},
		"GET /storage/v1/b/google-bucket/o/a":                {},
	} {
		method, target, _ := strings.Cut(request, " ")
		if got := readStorageRequest(httptest.NewRequestWithContext(t.Context(), method, target, nil), host); got != want {
			t.Errorf("%s: %+v, want %+v", request, got, want)
		}
	}
}

// FuzzReadStorage checks that readStorageRequest and a server find the same bucket in a path,
// whether the server decodes the path, cleans it, or does both.
func FuzzReadStorage(f *testing.F) {
	for _, path := range []string{"storage/v1/b/bucket/o/a%2Fb", "bucket/a/b", "bucket/%2e%2e/other/a", "storage/v1/b/bucket/o/%2e%2e", "bucket/a%00b"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://storage.googleapis.com/"+path, nil)
		if err != nil {
			return
		}
		q := readStorageRequest(r, endpoint{service: ServiceStorage, universe: DefaultUniverse})
		if q.permission == "" {
			return
		}
		prefix := "/" + q.bucket
		if !q.xml {
			prefix = r.URL.Path[:strings.Index(r.URL.Path, "/b/")+3] + q.bucket
		}
		for _, reading := range []string{r.URL.Path, clean(r.URL.Path), clean(r.URL.EscapedPath())} {
			if !strings.HasPrefix(reading+"/", prefix+"/") {
				t.Errorf("%q: bucket %q, but one reading is %q", path, q.bucket, reading)
			}
		}
	})
}

// clean cleans a path as http.ServeMux and similar routers do.
func clean(path string) string {
	var out []string
	for s := range strings.SplitSeq(path, "/") {
		switch {
		case s == ".." && len(out) > 0:
			out = out[:len(out)-1]
		case s != "" && s != "." && s != "..":
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}
