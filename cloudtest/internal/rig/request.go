// Package rig has helpers for the tests of the local cloud: requests, golden files, and an AWS
// cloud with two tenants.
package rig

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest"
)

// NewRequest makes a request. It sets the content type unless it is empty.
func NewRequest(t *testing.T, method, target, contentType, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

// ReadAll reads an answer's body to its end and closes it.
func ReadAll(t *testing.T, res *http.Response) string {
	t.Helper()
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Proxied starts the cloud's proxy. It returns a transport that goes through the proxy, like
// another process.
func Proxied(t *testing.T, c *cloudtest.Cloud) *http.Transport {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy, err := url.Parse(c.ProxyURL())
	if err != nil {
		t.Fatal(err)
	}
	transport := c.Transport()
	transport.DialContext = nil
	transport.Proxy = http.ProxyURL(proxy)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}
