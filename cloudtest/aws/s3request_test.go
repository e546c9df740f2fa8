package aws

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestS3Requests(t *testing.T) {
	tests := []struct {
		// request is the method and the target. bucket is the bucket in the host's name, or empty.
		request, bucket string
		want            string // operation, permission, bucket and key
		code            string
	}{
		{"HEAD /my-bucket", "", "HeadBucket ListBucket my-bucket", ""},
		{"HEAD /", "my-bucket", "HeadBucket ListBucket my-bucket", ""},
		{"GET /my-bucket/?list-type=2&prefix=a/&delimiter=/&max-keys=5", "", "ListObjectsV2 ListBucket my-bucket", ""},
		{"GET /?prefix=a&marker=b", "my-bucket", "ListObjects ListBucket my-bucket", ""},
		{"GET /my-bucket/?location", "", "GetBucketLocation GetBucketLocation my-bucket", ""},
		{"GET /my-bucket/a/b", "", "GetObject GetObject my-bucket a/b", ""},
		{"GET /a/b?x-id=GetObject", "my-bucket", "GetObject GetObject my-bucket a/b", ""},
		{"HEAD /my-bucket/a%20b", "", "HeadObject GetObject my-bucket a b", ""},
		{"PUT /my-bucket/a/", "", "PutObject PutObject my-bucket a/", ""},
		{"DELETE /my-bucket/a", "", "DeleteObject DeleteObject my-bucket a", ""},
		{"POST /my-bucket/a?uploads", "", "CreateMultipartUpload PutObject my-bucket a", ""},
		{"PUT /my-bucket/a?uploadId=1&partNumber=2", "", "UploadPart PutObject my-bucket a", ""},
		{"POST /my-bucket/a?uploadId=1", "", "CompleteMultipartUpload PutObject my-bucket a", ""},
		{"DELETE /my-bucket/a?uploadId=1", "", "AbortMultipartUpload AbortMultipartUpload my-bucket a", ""},
		{"GET /my-bucket/a?uploadId=1", "", "ListParts ListMultipartUploadParts my-bucket a", ""},

		{"GET /", "", "ListBuckets ListAllMyBuckets", ""},
		{"GET /?max-buckets=1&prefix=a&bucket-region=eu-west-1&continuation-token=x&x-id=ListBuckets", "", "ListBuckets ListAllMyBuckets", ""},

		{"HEAD /", "", "", "NotImplemented"},
		{"GET /?delimiter=/", "", "", "NotImplemented"},
		{"PUT /my-bucket", "", "", "NotImplemented"},
		{"DELETE /my-bucket", "", "", "NotImplemented"},
		{"POST /my-bucket?delete", "", "", "NotImplemented"},
		{"GET /my-bucket?policy", "", "", "NotImplemented"},
		{"GET /my-bucket?versions", "", "", "NotImplemented"},
		{"GET /my-bucket?location&prefix=a", "", "", "NotImplemented"},
		{"GET /my-bucket/a?acl", "", "", "NotImplemented"},
		{"GET /my-bucket/a?versionId=1", "", "", "NotImplemented"},
		{"GET /my-bucket/a?prefix=b", "", "", "NotImplemented"},
		{"DELETE /my-bucket/a?uploads", "", "", "NotImplemented"},
		{"PUT /my-bucket/a?partNumber=2", "", "", "NotImplemented"},
		{"PUT /my-bucket/a?x-amz-acl=public-read", "", "", "NotImplemented"},
		{"GET /my-bucket?prefix=a&prefix=b", "", "", "InvalidArgument"},
		{"GET /My_bucket/a", "", "", "InvalidBucketName"},
		{"GET /..", "", "", "InvalidBucketName"},
		{"GET //my-bucket/a", "", "", "InvalidURI"},
		{"GET //a", "my-bucket", "", "InvalidURI"},
		{"GET /my-bucket//a", "", "", "InvalidURI"},
		{"GET /my-bucket/a//", "", "", "InvalidURI"},
		{"GET /my-bucket/../b/c", "", "", "InvalidURI"},
		{"GET /my-bucket/a/.", "", "", "InvalidURI"},
		{"GET /my-bucket/%2e%2e/b", "", "", "InvalidURI"},
		{"GET /my-bucket%2fa", "", "", "InvalidURI"},
		{"GET /my-bucket/a%2Fb", "", "", "InvalidURI"},
		{"GET /my-bucket/a%00b", "", "", "InvalidURI"},
		{"GET /my-bucket/a%ffb", "", "", "InvalidURI"},
		{"GET /my-bucket/" + strings.Repeat("x", 1025), "", "", "KeyTooLongError"},
	}
	for _, tt := range tests {
		method, target, _ := strings.Cut(tt.request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "https://x"+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		req, refusal := readS3Request(r, tt.bucket)
		got, code := "", ""
		if refusal != nil {
			code = refusal.Code
		} else {
			got = strings.TrimSpace(req.name + " " + req.action + " " + req.bucket + " " + req.key)
		}
		if got != tt.want || code != tt.code {
			t.Errorf("%s: %q %s, want %q %s", tt.request, got, code, tt.want, tt.code)
		}
	}
}

func TestS3Headers(t *testing.T) {
	for name, want := range map[string]bool{
		"X-Amz-Date": true, "X-Amz-Meta-Anything": true, "X-Amz-Checksum-Crc64nvme": true, "X-Amz-Sdk-Checksum-Algorithm": true, "Range": true,
		"X-Amz-Copy-Source": false, "X-Amz-Acl": false, "X-Amz-Grant-Read": false, "X-Amz-Tagging": false, "X-Amz-Checksum-Md5": false,
		"X-Amz-Server-Side-Encryption-Customer-Key": false, "X-Amz-Object-Lock-Mode": false, "X-Amz-Website-Redirect-Location": false,
		"X-Amz-Bypass-Governance-Retention": false, "X-Amz-Anything": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/my-bucket/a", nil)
		r.Header.Set(name, "x")
		if _, refusal := readS3Request(r, ""); (refusal == nil) != want {
			t.Errorf("%s: %+v", name, refusal)
		}
	}
}

// FuzzS3Path compares the path that a client sent with the path that the data plane gets. Both must
// lead to the same object. The data plane's path consists of the bucket and the key that
// readS3Request found in the client's request.
func FuzzS3Path(f *testing.F) {
	f.Add("my-bucket/a/b", "prefix=a", "")
	f.Add("my-bucket/../b", "", "")
	f.Add("/", "", "") // the URL is https://x//: its path "//" is not the root, but has no bucket
	f.Add("a%2f..%2fb", "list-type=2", "my-bucket")
	f.Fuzz(func(t *testing.T, path, query, bucket string) {
		u, err := url.Parse("https://x/" + path)
		if err != nil || (bucket != "" && !isBucketLabel(bucket)) {
			return
		}
		u.RawQuery = query
		r := (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(t.Context())
		got, refusal := readS3Request(r, bucket)
		if refusal != nil {
			return
		}
		forwarded := "/" + got.bucket
		if got.key != "" {
			forwarded += "/" + got.key
		}
		sent := u.Path
		if bucket != "" {
			sent = "/" + bucket + sent
		}
		if forwarded != sent && forwarded+"/" != sent {
			t.Errorf("%q of %q: forwarded as %q", path, bucket, forwarded)
		}
		if got.on == onAccount {
			if u.Path != "/" || bucket != "" || got.bucket+got.key != "" {
				t.Errorf("%q of %q: %+v", path, bucket, got)
			}
			return
		}
		if got.action == "" || !isBucketName(got.bucket) || (got.on == onObject) != (got.key != "") || strings.Contains("/"+got.key+"/", "/../") {
			t.Errorf("%q of %q: %+v", path, bucket, got)
		}
	})
}
