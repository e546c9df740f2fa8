package gcp

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// storageRequest says which permission a request to Cloud Storage needs, and for which object. An
// empty permission means that the request is unknown; such a request is always refused.
type storageRequest struct {
	xml            bool
	bucket, object string
	permission     string
}

// resource returns the full name of the bucket or object. Source: Cloud Storage, "IAM conditions:
// resource names".
func (q storageRequest) resource() string {
	name := "projects/_/buckets/" + q.bucket
	if q.object != "" {
		name += "/objects/" + q.object
	}
	return name
}

func (q storageRequest) protocol() service.Protocol {
	if q.xml {
		return storageXML()
	}
	return storageJSON()
}

// readStorageRequest reads a request to the JSON or the XML API. It refuses unknown requests. The
// local cloud checks permissions for the bucket, the path and the method that are read here.
// Afterwards a data plane, which checks nothing, answers the request. So it is most important to
// refuse two kinds of requests:
//   - a request that could make the data plane read another bucket
//   - a request that could make the data plane do something other than the method says
func readStorageRequest(r *http.Request, ep endpoint) storageRequest {
	escaped := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	xml := ep.bucket != "" || !isJSONPath(escaped)
	segments := strings.Split(escaped, "/") // only an object's name may have escapes
	for _, s := range segments {
		if plain, err := url.PathUnescape(s); err != nil || !onePath(plain) {
			return storageRequest{xml: xml}
		}
	}
	for _, name := range []string{"X-Http-Method-Override", "X-Goog-Copy-Source", "X-Amz-Copy-Source"} {
		if plane.Has(r.Header, name) {
			return storageRequest{xml: xml}
		}
	}
	if !xml {
		return readJSONStorage(r, segments)
	}
	if ep.bucket != "" {
		segments = append([]string{ep.bucket}, segments...)
	}
	return readXMLStorage(r, segments)
}

// unescape decodes the escapes of a path, which must be valid.
func unescape(path string) string {
	plain, _ := url.PathUnescape(path)
	return plain
}

// onePath reports whether a decoded segment of a URL path has no element "." or "..", and no NUL
// byte. A decoded segment may contain slashes, and so several elements. Some data planes clean a
// path after decoding it. They would read "a/../b" as "b", another object than the cloud checked.
func onePath(segment string) bool {
	parts := strings.Split(segment, "/")
	return !slices.Contains(parts, ".") && !slices.Contains(parts, "..") && !strings.ContainsRune(segment, 0)
}

func isJSONPath(escaped string) bool {
	return slices.ContainsFunc(
		[]string{"storage/v1/", "download/storage/v1/", "upload/storage/v1/", "resumable/upload/storage/v1/", "batch/"},
		func(prefix string) bool { return strings.HasPrefix(escaped, prefix) })
}

// readJSONStorage reads b/<bucket>, b/<bucket>/o and b/<bucket>/o/<object>, after the API's prefix.
// Source: Cloud Storage JSON API, "Resource summary".
func readJSONStorage(r *http.Request, segments []string) storageRequest {
	at := slices.Index(segments, "b")
	if at < 0 || at+1 >= len(segments) || !isBucketName(segments[at+1]) {
		return storageRequest{}
	}
	prefix, rest := strings.Join(segments[:at], "/"), segments[at+2:]
	q := storageRequest{bucket: segments[at+1]}
	if len(rest) == 2 && rest[0] == "o" && rest[1] != "" {
		q.object = unescape(rest[1])
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	folder := len(rest) == 1 && rest[0] == "o"
	switch {
	case prefix == "storage/v1" && len(rest) == 0 && reads:
		q.permission = permBucketGet
	case prefix == "storage/v1" && folder && reads:
		q.permission = permObjectList
	case (prefix == "storage/v1" || prefix == "download/storage/v1") && q.object != "" && reads:
		q.permission = permObjectGet
	case prefix == "storage/v1" && q.object != "" && r.Method == http.MethodDelete:
		q.permission = permObjectDelete
	case prefix == "storage/v1" && q.object != "" && (r.Method == http.MethodPatch || r.Method == http.MethodPut):
		q.permission = permObjectUpdate
	case (prefix == "upload/storage/v1" || prefix == "resumable/upload/storage/v1") &&
		folder && (r.Method == http.MethodPost || r.Method == http.MethodPut):
		q.permission = permObjectCreate
	default:
		return storageRequest{}
	}
	return q
}

// xmlParameters returns those query parameters of the XML API that do not select a subresource.
// Source: Cloud Storage XML API, "GET Bucket (List Objects)" and "GET Object".
func xmlParameters() []string {
	return []string{
		"prefix", "delimiter", "marker", "max-keys", "list-type", "continuation-token",
		"start-after", "encoding-type", "fetch-owner", "versions",
		"generation", "userProject", "response-content-type", "response-content-disposition",
	}
}

// readXMLStorage parses a request of the XML API. Its URL path is /<bucket> or /<bucket>/<object>.
func readXMLStorage(r *http.Request, segments []string) storageRequest {
	q := storageRequest{xml: true, bucket: segments[0], object: unescape(strings.Join(segments[1:], "/"))}
	if !isBucketName(q.bucket) {
		return storageRequest{xml: true}
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	for name := range values {
		if err != nil || !slices.Contains(xmlParameters(), name) {
			return storageRequest{xml: true}
		}
	}
	switch {
	case err != nil:
		return storageRequest{xml: true}
	case q.object == "" && r.Method == http.MethodGet:
		q.permission = permObjectList
	case q.object == "" && r.Method == http.MethodHead:
		q.permission = permBucketGet
	case q.object == "":
		return storageRequest{xml: true}
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		q.permission = permObjectGet
	case r.Method == http.MethodPut:
		q.permission = permObjectCreate
	case r.Method == http.MethodDelete:
		q.permission = permObjectDelete
	default:
		return storageRequest{xml: true}
	}
	return q
}
