// Package oci reads requests to an OCI registry. [Read] determines a request's kind and repository.
// From these, each cloud decides which permissions the request needs, and whether the caller has
// them. If so, the cloud can let a data plane answer the request. A data plane checks no
// permissions. It gets the copy of the request that [Forwarded] makes. Source: OCI Distribution
// Specification v1.1, "Endpoints".
package oci

import (
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/plane"
)

// Kind is the kind of a request to a registry.
type Kind int

// Kinds of requests to a registry. Every other request is [Unknown], and is never allowed.
const (
	Unknown        Kind = iota
	Ping                // GET /v2/, which checks whether the host is a registry
	PullManifest        // GET or HEAD
	PushManifest        // PUT
	DeleteManifest      // DELETE
	CheckBlob           // HEAD
	PullBlob            // GET
	StartUpload         // POST without a digest
	PushBlob            // POST of a whole blob, with its digest
	ContinueUpload      // PATCH, GET or DELETE of an upload
	FinishUpload        // PUT
	ListTags            // GET
	ListReferrers       // GET
)

// Reads reports whether a request of this kind changes nothing.
func (k Kind) Reads() bool {
	return slices.Contains([]Kind{Ping, PullManifest, CheckBlob, PullBlob, ListTags, ListReferrers}, k)
}

// Request describes a request to a registry.
type Request struct {
	Kind Kind
	// Repository is the repository's name after /v2/. It is empty for [Ping] and [Unknown]. The
	// data plane, which answers allowed requests, finds the same name in the path: [Read] refuses a
	// path that servers can read in two ways.
	Repository string
}

// namePattern matches a repository's name. Source: OCI Distribution Specification v1.1, "Pulling
// manifests".
var namePattern = regexp.MustCompile(`\A[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*\z`)

// maxName is the maximum length of a repository's name, in bytes.
const maxName = 255

// IsName reports whether name is a valid name of a repository.
func IsName(name string) bool { return len(name) <= maxName && namePattern.MatchString(name) }

// Read determines the kind and the repository of a request.
func Read(r *http.Request) Request {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if reads && (r.URL.Path == "/v2" || r.URL.Path == "/v2/") {
		return Request{Kind: Ping}
	}
	// Refuse a path that servers can read in two ways. Otherwise the data plane could read a
	// repository that was not checked.
	if !ok || r.URL.EscapedPath() != r.URL.Path || strings.Contains(rest, "//") {
		return Request{}
	}
	// Refuse a query that servers can read in two ways. Otherwise [Forwarded] could miss a mount
	// parameter that the data plane reads.
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return Request{}
	}
	// Refuse a path that leads out of the repository.
	if last := rest[strings.LastIndexByte(rest, '/')+1:]; last == "." || last == ".." {
		return Request{}
	}
	name, kind := split(r, rest, reads)
	if kind == Unknown || !IsName(name) {
		return Request{}
	}
	return Request{Kind: kind, Repository: name}
}

// split returns the repository's name and the request's kind. The kind depends on the method and on
// the end of the path.
func split(r *http.Request, rest string, reads bool) (name string, kind Kind) {
	if name, ok := strings.CutSuffix(rest, "/tags/list"); ok {
		if reads {
			return name, ListTags
		}
		return "", Unknown
	}
	if name, upload, ok := cutLast(rest, "/blobs/uploads/"); ok || strings.HasSuffix(rest, "/blobs/uploads") {
		if !ok {
			name = strings.TrimSuffix(rest, "/blobs/uploads")
		}
		return name, uploadKind(r, upload)
	}
	name, what, reference, ok := cutReference(rest)
	digest := strings.Contains(reference, ":")
	switch {
	case !ok:
	case what == "manifests" && reads:
		return name, PullManifest
	case what == "manifests" && r.Method == http.MethodPut:
		return name, PushManifest
	case what == "manifests" && r.Method == http.MethodDelete:
		return name, DeleteManifest
	case what == "blobs" && r.Method == http.MethodHead && digest:
		return name, CheckBlob
	case what == "blobs" && r.Method == http.MethodGet && digest:
		return name, PullBlob
	case what == "referrers" && reads:
		return name, ListReferrers
	}
	return "", Unknown
}

func uploadKind(r *http.Request, upload string) Kind {
	switch {
	case upload == "" && r.Method == http.MethodPost && r.URL.Query().Has("digest"):
		return PushBlob
	case upload == "" && r.Method == http.MethodPost:
		return StartUpload
	case upload == "":
		return Unknown
	case r.Method == http.MethodPatch, r.Method == http.MethodGet, r.Method == http.MethodDelete:
		return ContinueUpload
	case r.Method == http.MethodPut:
		return FinishUpload
	}
	return Unknown
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+len(sep):], !strings.Contains(s[i+len(sep):], "/")
}

// cutReference splits <name>/<manifests|blobs|referrers>/<reference>.
func cutReference(rest string) (name, what, reference string, ok bool) {
	rest, reference, _ = cutLast(rest, "/")
	name, what, ok = cutLast(rest, "/")
	return name, what, reference, ok && reference != ""
}

// Forwarded returns a copy of an allowed request for a data plane, see [plane.Request]. The copy
// never asks to mount a blob from another repository, because that repository was not checked.
// Registries may decline a mount; the client then uploads the blob. Some servers also read
// parameters from a form in the body. So the copy's content type is never a form.
func Forwarded(r *http.Request) *http.Request {
	out := plane.Request(r)
	if q := out.URL.Query(); q.Has("mount") || q.Has("from") {
		q.Del("mount")
		q.Del("from")
		out.URL.RawQuery = q.Encode()
		out.RequestURI = out.URL.RequestURI()
	}
	if media, _, err := mime.ParseMediaType(out.Header.Get("Content-Type")); err != nil || !isManifest(media) {
		out.Header.Del("Content-Type")
		if out.ContentLength != 0 {
			out.Header.Set("Content-Type", "application/octet-stream")
		}
	}
	return out
}

// isManifest reports whether a body with this media type can be a manifest. [Forwarded] forwards no
// other media type, because registries need only those of manifests.
func isManifest(media string) bool {
	return strings.HasPrefix(media, "application/vnd.") || media == "application/json"
}
