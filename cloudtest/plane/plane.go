// Package plane prepares requests that a cloud has allowed for the data planes that answer them. A data plane judges nothing, so it must not be able to
// read another request than the one that was judged.
package plane

import (
	"net/http"
	"slices"
	"strings"
)

// keptBack says which headers are not passed on: those that are the cloud's business, and those by which servers let a client
// change the method, host or path of a request, or have it read another object. Clouds refuse copies by their own header; that of another one must not serve.
func keptBack(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || strings.HasSuffix(name, "-Copy-Source") || slices.Contains([]string{
		"Authorization", "Proxy-Authorization", "Cookie", "Connection", "Forwarded", "X-Real-Ip", "X-Host", "X-Original-Host", "X-Original-Method", "X-Original-Url",
		"X-Rewrite-Url", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override",
	}, name)
}

// spelled is a header's name as servers read it that cannot tell "_" from "-".
func spelled(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// Has says whether a header is there at all: empty, twice, or in a spelling that some servers take for it.
func Has(h http.Header, name string) bool {
	for present := range h {
		if spelled(present) == http.CanonicalHeaderKey(name) {
			return true
		}
	}
	return false
}

// Request returns a copy of an allowed request for a data plane: with the path, query and host that the client used, without its credentials, and without
// headers that would make another request of it. It says that the client came by https, so that the links in answers are https too.
func Request(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	for name := range out.Header {
		if keptBack(spelled(name)) {
			delete(out.Header, name)
		}
	}
	out.Header.Set("X-Forwarded-Proto", "https")
	return out
}
