package aws

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// maxKey bounds an object's key, in bytes. Source: Amazon S3 User Guide, "Naming Amazon S3
// objects".
const maxKey = 1024

// s3Operation is an operation of S3 and the permission that it needs. Operations that are not in
// s3Operations are refused. Sources: Amazon S3 API Reference, "Actions"; Service Authorization
// Reference, "Actions, resources, and condition keys for Amazon S3".
type s3Operation struct {
	name   string
	action string // without the service prefix
	method string
	on     s3Level
	marker string   // the query parameter that selects the operation; empty: none
	params []string // further query parameters that a request may have
}

// s3Level says whether an operation works on an account, a bucket or an object.
type s3Level int

const (
	onObject s3Level = iota
	onBucket
	onAccount // the caller's account
)

const (
	opListBuckets       = "ListBuckets"
	opGetObject         = "GetObject"
	opHeadObject        = "HeadObject"
	opHeadBucket        = "HeadBucket"
	opGetBucketLocation = "GetBucketLocation"
	opListObjects       = "ListObjects"
	opListObjectsV2     = "ListObjectsV2"
	actionListBucket    = "ListBucket"
	actionPutObject     = "PutObject"
)

func s3Operations() []s3Operation {
	const get, head, put, post, del = http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete
	listing := []string{"prefix", "delimiter", "max-keys", "encoding-type"}
	return []s3Operation{
		{opListBuckets, "ListAllMyBuckets", get, onAccount, "", []string{"max-buckets", "continuation-token", "prefix", "bucket-region"}},
		{opHeadBucket, actionListBucket, head, onBucket, "", nil},
		{opGetBucketLocation, "GetBucketLocation", get, onBucket, "location", nil},
		{
			opListObjectsV2, actionListBucket, get, onBucket, "list-type",
			append(listing, "continuation-token", "start-after", "fetch-owner"),
		},
		{opListObjects, actionListBucket, get, onBucket, "", append(listing, "marker")},
		{opGetObject, "GetObject", get, onObject, "", nil},
		{opHeadObject, "GetObject", head, onObject, "", nil},
		{"PutObject", actionPutObject, put, onObject, "", nil},
		{"DeleteObject", "DeleteObject", del, onObject, "", nil},
		{"CreateMultipartUpload", actionPutObject, post, onObject, "uploads", nil},
		{"UploadPart", actionPutObject, put, onObject, "uploadId", []string{"partNumber"}},
		{"CompleteMultipartUpload", actionPutObject, post, onObject, "uploadId", nil},
		{"AbortMultipartUpload", "AbortMultipartUpload", del, onObject, "uploadId", nil},
		{"ListParts", "ListMultipartUploadParts", get, onObject, "uploadId", []string{"max-parts", "part-number-marker", "encoding-type"}},
	}
}

// s3Request is a request's operation, bucket and object.
type s3Request struct {
	s3Operation

	bucket, key string
}

// readS3Request parses a request. For a virtual host, the caller passes the bucket in the host
// name, otherwise the empty string. The result contains the request's bucket even if the request is
// refused.
func readS3Request(r *http.Request, bucket string) (s3Request, *service.Refusal) {
	req := s3Request{bucket: bucket, key: strings.TrimPrefix(r.URL.Path, "/")}
	if bucket == "" {
		req.bucket, req.key, _ = strings.Cut(req.key, "/")
	}
	// The data plane must read the same bucket and key from the path as this function. S3 itself
	// accepts keys with the segments "", "." and "..". The local cloud refuses them, because
	// servers in front of a store remove such segments.
	if !strings.HasPrefix(r.URL.Path, "/") || (req.bucket == "" && r.URL.Path != "/") ||
		strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f") || !plainKey(req.key) {
		return req, service.Refuse(http.StatusBadRequest, "InvalidURI", "Couldn't parse the specified URI.")
	}
	if len(req.key) > maxKey {
		return req, service.Refuse(http.StatusBadRequest, "KeyTooLongError", "Your key is too long")
	}
	if req.bucket != "" && !isBucketName(req.bucket) {
		return req, service.Refuse(http.StatusBadRequest, "InvalidBucketName", "The specified bucket is not valid.")
	}
	query := r.URL.Query()
	for _, values := range query {
		if len(values) > 1 {
			return req, service.Refuse(http.StatusBadRequest, "InvalidArgument", "A query parameter stands twice.")
		}
	}
	for _, op := range s3Operations() {
		if op.is(r.Method, req.level(), query) {
			req.s3Operation = op
			if r.ContentLength < 0 && r.Header.Get("X-Amz-Decoded-Content-Length") == "" {
				return req, service.Refuse(http.StatusLengthRequired, "MissingContentLength",
					"You must provide the Content-Length HTTP header.")
			}
			return req, checkS3Headers(r.Header)
		}
	}
	return req, service.Refuse(http.StatusNotImplemented, "NotImplemented",
		"A header you provided implies functionality that is not implemented").
		Because("the local cloud has no such operation of S3, or not with these parameters")
}

// level says whether a request is for the caller's account, a bucket or an object. A request
// without a bucket is for the account. A request with a bucket but without a key is for the bucket.
func (r s3Request) level() s3Level {
	switch {
	case r.bucket == "":
		return onAccount
	case r.key == "":
		return onBucket
	default:
		return onObject
	}
}

func plainKey(key string) bool {
	if key == "" {
		return true
	}
	// A key that ends with a slash stands for a folder, and is allowed.
	segments := strings.Split(strings.TrimSuffix(key, "/"), "/")
	bad := slices.ContainsFunc(segments, func(s string) bool { return s == "" || s == "." || s == ".." })
	return !bad && utf8.ValidString(key) && !strings.ContainsRune(key, 0)
}

// is reports whether a request calls this operation. A request with an unknown query parameter
// calls none.
func (o s3Operation) is(method string, on s3Level, query url.Values) bool {
	if method != o.method || on != o.on || (o.marker != "" && !query.Has(o.marker)) {
		return false
	}
	for name := range query {
		if name != o.marker && name != "x-id" && !slices.Contains(o.params, name) && !slices.Contains(signatureParams(), name) {
			return false
		}
	}
	return true
}

// signatureParams returns the query parameters that presigning adds to a request. Presigning can
// also move headers into the query, where S3 accepts all of them. Of these headers, the local cloud
// accepts only X-Amz-Checksum-Mode, which does not change the operation.
func signatureParams() []string {
	return []string{
		"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
		"X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Security-Token",
		"X-Amz-Checksum-Mode", "x-amz-checksum-mode",
	}
}

// snowballPrefix is the prefix of headers that make S3-compatible stores unpack an upload. Each
// file in the upload becomes an object with its own key. Source: AWS Snowball Edge Developer Guide,
// "Batching small files".
const snowballPrefix = "x-amz-meta-snowball-"

// forS3Plane reports whether the data plane gets a header. The name must be in lower case. The data
// plane gets the HTTP headers that S3 supports, and S3's own headers about the object. It does not
// get the headers that only some S3-compatible stores have. One reason: with some of these headers,
// a request deletes whole folders. Source: Amazon S3 API Reference, "Common request headers".
func forS3Plane(name string) bool {
	switch name {
	case "accept", "accept-encoding", "cache-control", "content-disposition",
		"content-language", "content-length", "content-md5", "content-type", "date", "expires",
		"if-match", "if-modified-since", "if-none-match", "if-unmodified-since", "range", "user-agent", "x-forwarded-proto":
		return true
	case "x-amz-content-sha256", "x-amz-date", "x-amz-decoded-content-length",
		"x-amz-expected-bucket-owner", "x-amz-security-token", "x-amz-trailer":
		// These headers are about the client's credentials and chunk framing. The data plane gets
		// neither.
		return false
	}
	return strings.HasPrefix(name, "x-amz-")
}

// checkS3Headers refuses headers that change what a request does, such as those for copies, access
// lists, tags, locks, encryption keys and archives to unpack.
func checkS3Headers(h http.Header) *service.Refusal {
	for name := range h {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "x-amz-") || (strings.HasPrefix(lower, "x-amz-meta-") && !strings.HasPrefix(lower, snowballPrefix)) {
			continue
		}
		switch lower {
		case "x-amz-date", "x-amz-content-sha256", "x-amz-security-token",
			"x-amz-user-agent", "x-amz-expected-bucket-owner", "x-amz-storage-class",
			"x-amz-trailer", "x-amz-decoded-content-length", "x-amz-sdk-checksum-algorithm",
			"x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type":
		default:
			if !slices.Contains(checksumHeaders(), lower) {
				return service.Refuse(http.StatusNotImplemented, "NotImplemented",
					"A header you provided implies functionality that is not implemented").
					With(elements("Header", lower))
			}
		}
	}
	return nil
}
