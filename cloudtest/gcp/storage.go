package gcp

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// ServeStorage hands in the data plane of Cloud Storage, which must have the buckets too. It gets only requests that were allowed, without the
// Authorization header, under the host storage.<universe domain> and the path that the client used; what was asked of <bucket>.storage.<universe domain> comes
// under /<bucket>/….
func (c *Cloud) ServeStorage(h http.Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.storage = h
}

func (c *Cloud) serveStorage(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	req := readStorage(r, ep)
	if req.permission != "" {
		call.Operation, call.Resource = req.permission, req.resource()
	}
	protocol := req.protocol()
	now, ok := c.begin(r.Context(), w, protocol, call)
	if !ok {
		return
	}
	token, err := c.storageCaller(r, ep, now)
	call.Principal = token.who.name()
	var refusal *apiError
	lists := false // may the caller know what is not there
	switch {
	case err != nil:
		refusal = refused(http.StatusUnauthorized, storageBadToken, "Invalid Credentials").because(err.Error())
	case req.permission == "":
		refusal = refused(http.StatusNotFound, storageNotFound, "Not Found").because("the local cloud has no such operation of Cloud Storage")
	default:
		lists, refusal = c.authorizeStorage(token, req, ep)
	}
	if refusal != nil {
		protocol.refuse(w, call, refusal)
		return
	}
	c.mu.RLock()
	h := c.storage
	c.mu.RUnlock()
	if h == nil {
		protocol.refuse(w, call, protocol.faulted(fault.Unavailable).because("no data plane was handed in for Cloud Storage"))
		return
	}
	if req.permission == permObjectGet && !lists {
		w = &hidingWriter{ResponseWriter: w, refuse: func(w http.ResponseWriter) {
			protocol.refuse(w, call, storageDenied(token.who, permObjectList).because("there is no such object, and the caller may not list"))
		}}
	}
	forwardStorage(w, r, ep, h)
}

// storageCaller proves the caller by an access token. Nobody without one is refused yet. Signed URLs and HMAC keys are not taken.
func (c *Cloud) storageCaller(r *http.Request, ep endpoint, now time.Time) (accessToken, error) {
	if r.Header.Get("Authorization") == "" {
		return accessToken{who: principal{universe: ep.universe}}, nil
	}
	raw, ok := wire.Bearer(r)
	if !ok {
		return accessToken{}, errNoCredentials
	}
	return c.redeem(raw, ep.universe, "", now)
}

// storageScopes are the scopes of access tokens that suffice. Source: Cloud Storage, "Cloud Storage authentication: OAuth 2.0 scopes".
func storageScopes(permission string) []string {
	scopes := []string{scopeCloudPlatform, scopeStorageFull, scopeStorageWrite}
	switch permission {
	case permObjectGet, permObjectList, permBucketGet:
		scopes = append(scopes, scopeCloudReadOnly, scopeStorageRead)
	}
	return scopes
}

// authorizeStorage asks whether the bucket exists, which Cloud Storage tells everybody, and then the policies of bucket and project. It says too
// whether the caller may list the bucket's objects. To replace an object takes storage.objects.delete at Google, which only the data plane could tell; here
// storage.objects.create suffices. Source: Cloud Storage, "IAM permissions for JSON methods" and "… for XML requests".
func (c *Cloud) authorizeStorage(token accessToken, req storageRequest, ep endpoint) (lists bool, refusal *apiError) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.buckets[req.bucket]
	scoped := token.who.anonymous() || slices.ContainsFunc(storageScopes(req.permission), func(s string) bool { return slices.Contains(token.scopes, s) })
	switch {
	case b == nil || c.projects[b.project].universe != ep.universe:
		return false, refused(http.StatusNotFound, storageNoBucket, "The specified bucket does not exist.")
	case !scoped:
		return false, refused(http.StatusForbidden, storageForbidden, "Provided scope(s) are not authorized")
	case !c.allowed(token.who, req.permission, b.project, b.policy):
		return false, storageDenied(token.who, req.permission)
	}
	return c.allowed(token.who, permObjectList, b.project, b.policy), nil
}

// storageDenied words a refusal as Cloud Storage does; federated callers are not named.
func storageDenied(who principal, permission string) *apiError {
	caller, status := "Caller", http.StatusForbidden
	switch {
	case who.anonymous():
		caller, status = "Anonymous caller", http.StatusUnauthorized
	case !who.federated():
		caller = who.email
	}
	kind := "object"
	if permission == permObjectList || strings.HasPrefix(permission, "storage.buckets.") {
		kind = "bucket"
	}
	return refused(status, storageForbidden, caller+" does not have "+permission+" access to the Google Cloud Storage "+kind+
		". Permission '"+permission+"' denied on resource (or it may not exist).").
		because("no binding on the bucket or its project gives " + permission + " to " + who.name())
}

// hidingWriter answers a refusal in place of what a data plane does not have: who may not list a bucket is not told what is missing from it.
type hidingWriter struct {
	http.ResponseWriter

	refuse func(http.ResponseWriter)
	hidden bool
}

// WriteHeader passes every status but 404 on.
func (h *hidingWriter) WriteHeader(status int) {
	if status != http.StatusNotFound {
		h.ResponseWriter.WriteHeader(status)
		return
	}
	if !h.hidden {
		h.hidden = true
		clear(h.Header()) // what the data plane said of the object
		h.refuse(h.ResponseWriter)
	}
}

// Write drops what belongs to a hidden answer.
func (h *hidingWriter) Write(b []byte) (int, error) {
	if h.hidden {
		return len(b), nil
	}
	return h.ResponseWriter.Write(b) //nolint:wrapcheck // it is the caller's writer
}

// forwardStorage passes an allowed request to the data plane.
func forwardStorage(w http.ResponseWriter, r *http.Request, ep endpoint, h http.Handler) {
	out := plane.Request(r)
	out.Host = "storage." + ep.universe
	if ep.bucket != "" {
		escaped := "/" + ep.bucket + out.URL.EscapedPath()
		out.URL.Path, out.URL.RawPath = "/"+ep.bucket+out.URL.Path, escaped
		out.RequestURI = out.URL.RequestURI()
	}
	h.ServeHTTP(w, out)
}
