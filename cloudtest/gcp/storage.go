package gcp

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// ServeStorage sets the data plane of Cloud Storage. Each configured bucket must also exist in the
// data plane. The handler gets only allowed requests, without the Authorization header. The
// requests have the host storage.<universe domain> and the client's path. For a request to
// <bucket>.storage.<universe domain>, the path becomes /<bucket>/….
func (c *Cloud) ServeStorage(h http.Handler) { c.storage.Set(func(struct{}) http.Handler { return h }) }

// readStorage implements [service.Service] for Cloud Storage.
func (c *Cloud) readStorage(r *service.Request, ep endpoint) (service.Protocol, service.Handler) {
	req := readStorageRequest(r.Request, ep)
	if req.permission != "" {
		r.Call.Operation, r.Call.Resource = req.permission, req.resource()
	}
	return req.protocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
		token, err := c.storageCaller(r, ep)
		r.Call.Principal = token.who.name()
		switch {
		case err != nil:
			return nil, service.Refuse(http.StatusUnauthorized, storageBadToken, "Invalid Credentials").Because(err.Error())
		case req.permission == "":
			return nil, service.Refuse(http.StatusNotFound, storageNotFound, "Not Found").
				Because("the local cloud has no such operation of Cloud Storage")
		}
		lists, refusal := c.authorizeStorage(token, req, ep)
		if refusal != nil {
			return nil, refusal
		}
		var hidden *service.Refusal // replaces "not found" unless the caller may list objects
		if req.permission == permObjectGet && !lists {
			hidden = storageDenied(token.who, permObjectList).Because("there is no such object, and the caller may not list")
		}
		return r.Forward(c.storage.Get(struct{}{}), forwardedStorage(r.Request, ep), hidden)
	}
}

// storageCaller authenticates the caller by an access token. A caller without a token is anonymous,
// and not refused yet. Signed URLs and HMAC keys are not accepted.
func (c *Cloud) storageCaller(r *service.Request, ep endpoint) (accessToken, error) {
	if r.Header.Get("Authorization") == "" {
		return accessToken{who: principal{universe: ep.universe}}, nil
	}
	raw, ok := wire.Bearer(r.Request)
	if !ok {
		return accessToken{}, errNoCredentials
	}
	return c.redeem(raw, ep.universe, "", r.Now)
}

// storageScopes returns the scopes that give a permission. An access token needs one of them.
// Source: Cloud Storage, "Cloud Storage authentication: OAuth 2.0 scopes".
func storageScopes(permission string) []string {
	scopes := []string{scopeCloudPlatform, scopeStorageFull, scopeStorageWrite}
	switch permission {
	case permObjectGet, permObjectList, permBucketGet:
		scopes = append(scopes, scopeCloudReadOnly, scopeStorageRead)
	}
	return scopes
}

// authorizeStorage first checks whether the bucket exists. Every caller may learn this. Then it
// checks the token's scopes, and the policies of the bucket and its project. The result "lists"
// says whether the caller may list the bucket's objects.
//
// For an upload, storage.objects.create is enough. Google also requires storage.objects.delete if
// the upload replaces an object. The local cloud cannot require this, because only its data plane
// knows whether the object exists.
//
// Source: Cloud Storage, "IAM permissions for JSON methods" and "… for XML requests".
func (c *Cloud) authorizeStorage(token accessToken, req storageRequest, ep endpoint) (lists bool, refusal *service.Refusal) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.buckets[req.bucket]
	scoped := token.who.anonymous() ||
		slices.ContainsFunc(storageScopes(req.permission), func(s string) bool { return slices.Contains(token.scopes, s) })
	switch {
	case b == nil || c.projects[b.project].universe != ep.universe:
		return false, service.Refuse(http.StatusNotFound, storageNoBucket, "The specified bucket does not exist.")
	case !scoped:
		return false, service.Refuse(http.StatusForbidden, storageForbidden, "Provided scope(s) are not authorized")
	case !c.allowed(token.who, req.permission, b.project, b.policy):
		return false, storageDenied(token.who, req.permission)
	}
	return c.allowed(token.who, permObjectList, b.project, b.policy), nil
}

// storageDenied returns a refusal with Cloud Storage's message, which does not name federated
// callers.
func storageDenied(who principal, permission string) *service.Refusal {
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
	return service.Refuse(status, storageForbidden, caller+" does not have "+permission+" access to the Google Cloud Storage "+kind+
		". Permission '"+permission+"' denied on resource (or it may not exist).").
		Because("no binding on the bucket or its project gives " + permission + " to " + who.name())
}

// forwardedStorage returns an allowed request as the data plane gets it.
func forwardedStorage(r *http.Request, ep endpoint) *http.Request {
	out := plane.Request(r)
	out.Host = "storage." + ep.universe
	if ep.bucket != "" {
		escaped := "/" + ep.bucket + out.URL.EscapedPath()
		out.URL.Path, out.URL.RawPath = "/"+ep.bucket+out.URL.Path, escaped
		out.RequestURI = out.URL.RequestURI()
	}
	return out
}
