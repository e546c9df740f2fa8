// Package plane prepares allowed requests for the data planes. A data plane checks no permissions,
// so it must read exactly the request that the cloud checked.
package plane

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// Slot holds a service's data planes. Each data plane has a key, such as the registry that it
// serves. The zero value has no data planes. A Slot is safe for concurrent use.
type Slot[K any] struct {
	planes atomic.Pointer[func(K) http.Handler]
}

// Set replaces the data planes: planes(key) is a key's data plane, or nil if there is none.
func (s *Slot[K]) Set(planes func(K) http.Handler) { s.planes.Store(&planes) }

// Get returns the data plane of a key, or nil if there is none.
func (s *Slot[K]) Get(key K) http.Handler {
	if planes := s.planes.Load(); planes != nil && *planes != nil {
		return (*planes)(key)
	}
	return nil
}

// keptBack reports whether a header must not reach a data plane. The cloud itself handles some of
// these headers. Others can make some servers change the method, host or path of a request. A
// header that ends in -Copy-Source can make a server read another object. Each cloud refuses
// its own header of this kind. Those of other clouds are kept back here.
func keptBack(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || strings.HasSuffix(name, "-Copy-Source") || slices.Contains([]string{
		"Authorization", "Proxy-Authorization", "Cookie", "Connection", "Forwarded",
		"X-Real-Ip", "X-Host", "X-Original-Host", "X-Original-Method", "X-Original-Url",
		"X-Rewrite-Url", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override",
	}, name)
}

// spelled returns a header's name in canonical form, with "-" in place of "_". Some servers do not
// distinguish these characters.
func spelled(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// Has reports whether a header is present, even if it is empty, repeated, or in a spelling that
// only some servers accept.
func Has(h http.Header, name string) bool {
	for present := range h {
		if spelled(present) == http.CanonicalHeaderKey(name) {
			return true
		}
	}
	return false
}

// Request returns a copy of an allowed request for a data plane. The copy has the client's path,
// query and host. It has no credentials, and no headers that would turn it into another request.
// Its header X-Forwarded-Proto is https, so that links in answers use https too.
func Request(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	maps.DeleteFunc(out.Header, func(name string, _ []string) bool { return keptBack(spelled(name)) })
	out.Header.Set("X-Forwarded-Proto", "https")
	return out
}

// Answer is a data plane's answer to a request that the cloud itself made.
type Answer struct {
	// Status is the HTTP status.
	Status int
	// Body is the whole body.
	Body []byte
}

// Ask returns a data plane's answer to a request that the cloud itself made.
func Ask(to http.Handler, r *http.Request) Answer {
	w := &buffer{header: http.Header{}}
	to.ServeHTTP(w, r)
	if w.status == 0 {
		w.status = http.StatusOK // as net/http does for a handler that wrote no header
	}
	return Answer{Status: w.status, Body: w.body.Bytes()}
}

// buffer records an answer.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the answer's header.
func (b *buffer) Header() http.Header { return b.header }

// WriteHeader records the first final status.
func (b *buffer) WriteHeader(status int) {
	if b.status == 0 && status >= http.StatusOK {
		b.status = status
	}
}

// Write records a part of the body.
func (b *buffer) Write(data []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(data)
}
