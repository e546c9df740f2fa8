// Package distribution reads what requests to an OCI registry ask for, so that a cloud can ask its own permissions for it before its data plane sees
// the request. Source: OCI Distribution Specification v1.1, "Endpoints".
package distribution

import (
	"net/http"
	"regexp"
	"strings"
)

// Operation is what a request asks of a registry.
type Operation string

// The operations that registries have. What is none of them is not allowed.
const (
	// Ping is GET /v2/, which only asks who is there.
	Ping Operation = "Ping"
	// Catalog lists the registry's repositories.
	Catalog Operation = "Catalog"
	// ListTags lists a repository's tags.
	ListTags Operation = "ListTags"
	// ListReferrers lists what refers to a manifest.
	ListReferrers Operation = "ListReferrers"
	// ReadManifest reads a manifest, or its header.
	ReadManifest Operation = "ReadManifest"
	// WriteManifest stores a manifest.
	WriteManifest Operation = "WriteManifest"
	// DeleteManifest deletes a manifest or a tag.
	DeleteManifest Operation = "DeleteManifest"
	// StatBlob asks whether a blob is there.
	StatBlob Operation = "StatBlob"
	// ReadBlob reads a blob.
	ReadBlob Operation = "ReadBlob"
	// StartUpload begins to upload a blob, which comes in later requests.
	StartUpload Operation = "StartUpload"
	// UploadBlob uploads a blob in one request.
	UploadBlob Operation = "UploadBlob"
	// ContinueUpload sends a part of a blob, or asks how far its upload is, or gives it up.
	ContinueUpload Operation = "ContinueUpload"
	// FinishUpload ends the upload of a blob.
	FinishUpload Operation = "FinishUpload"
)

// Request is what is asked for.
type Request struct {
	// Operation is what is asked.
	Operation Operation
	// Repository is the repository's name, empty for [Ping] and [Catalog].
	Repository string
}

func namePattern() *regexp.Regexp {
	return regexp.MustCompile(`\A[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*\z`)
}

// IsName says whether a repository can have a name. Source: OCI Distribution Specification v1.1, "Pulling manifests".
func IsName(name string) bool { return len(name) <= 255 && namePattern().MatchString(name) }

// Read says what a request asks for. It is false for all that could be understood in two ways: the handler behind must see what was judged.
func Read(r *http.Request) (Request, bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case r.URL.Path == "/v2" || (ok && rest == ""):
		return Request{Operation: Ping}, read
	case !ok || r.URL.EscapedPath() != r.URL.Path || strings.Contains(rest, "//"):
		return Request{}, false
	case rest == "_catalog":
		return Request{Operation: Catalog}, r.Method == http.MethodGet
	}
	name, operation := readPath(r, rest, read)
	if operation == "" || !IsName(name) {
		return Request{}, false
	}
	return Request{Operation: operation, Repository: name}, true
}

// readPath reads <name>/<what>/<reference>.
func readPath(r *http.Request, rest string, read bool) (string, Operation) {
	if name, ok := strings.CutSuffix(rest, "/tags/list"); ok {
		return name, when(read, ListTags)
	}
	if name, ok := strings.CutSuffix(strings.TrimSuffix(rest, "/"), "/blobs/uploads"); ok {
		if r.URL.Query().Has("digest") {
			return name, when(r.Method == http.MethodPost, UploadBlob)
		}
		return name, when(r.Method == http.MethodPost, StartUpload)
	}
	rest, reference, ok := cutLast(rest)
	if !ok || strings.Trim(reference, ".") == "" { // "." and ".." would lead elsewhere
		return "", ""
	}
	if name, ok := strings.CutSuffix(rest, "/blobs/uploads"); ok {
		if r.Method == http.MethodPut {
			return name, FinishUpload
		}
		return name, when(r.Method == http.MethodPatch || r.Method == http.MethodGet || r.Method == http.MethodDelete, ContinueUpload)
	}
	name, what, _ := cutLast(rest)
	switch {
	case what == "manifests" && read:
		return name, ReadManifest
	case what == "manifests" && r.Method == http.MethodPut:
		return name, WriteManifest
	case what == "manifests" && r.Method == http.MethodDelete:
		return name, DeleteManifest
	case what == "blobs" && strings.Contains(reference, ":") && r.Method == http.MethodHead:
		return name, StatBlob
	case what == "blobs" && strings.Contains(reference, ":") && r.Method == http.MethodGet:
		return name, ReadBlob
	case what == "referrers":
		return name, when(read, ListReferrers)
	}
	return "", ""
}

func when(ok bool, o Operation) Operation {
	if !ok {
		return ""
	}
	return o
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// Cleared is the request as a data plane gets it once its cloud has allowed it: without credentials, without what other proxies said, and told that its
// client speaks https, so that the locations of uploads are https too. A request to mount a blob of another repository, which was not judged, becomes one
// to upload it: registries may decline a mount.
func Cleared(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	for _, name := range []string{"Authorization", "Forwarded", "X-Forwarded-Host", "X-Forwarded-For"} {
		out.Header.Del(name)
	}
	out.Header.Set("X-Forwarded-Proto", "https")
	if q := out.URL.Query(); q.Has("mount") || q.Has("from") {
		q.Del("mount")
		q.Del("from")
		out.URL.RawQuery = q.Encode()
		out.RequestURI = out.URL.RequestURI()
	}
	return out
}
