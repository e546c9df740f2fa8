package keyservice

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxBody bounds the answer of a key service, in bytes. A data key has 32 bytes.
const maxBody = 64 << 10

// bounded sends requests to one host, and bounds the answers.
type bounded struct {
	base http.RoundTripper
	host string
}

// target returns the URL of a host.
func target(host string) *url.URL { return &url.URL{Scheme: "https", Host: host, Path: "/"} }

// RoundTrip implements http.RoundTripper. It refuses requests to other hosts, because requests have
// credentials of the tenant.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || r.URL.Host != b.host {
		return nil, fmt.Errorf("a request to %q is refused: the key is at %s", r.URL.Host, b.host)
	}
	response, err := b.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &limited{io.LimitReader(response.Body, maxBody), response.Body}
	return response, nil
}

// limited is a body of which only the first bytes can be read.
type limited struct {
	io.Reader
	io.Closer
}
