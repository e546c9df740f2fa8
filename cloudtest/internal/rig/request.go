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
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
)

// NewRequest makes a request. If contentType is not empty, it sets the header Content-Type.
func NewRequest(t *testing.T, method, target, contentType, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	must.Succeed(t, err)
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
	must.Succeed(t, err)
	return string(body)
}

// Proxied starts the cloud's proxy. It returns a transport that goes through the proxy, as the
// requests of another process do.
func Proxied(t *testing.T, c *cloudtest.Cloud) *http.Transport {
	t.Helper()
	must.Succeed(t, c.Start(t.Context()))
	proxy, err := url.Parse(c.ProxyURL())
	must.Succeed(t, err)
	transport := c.Transport()
	transport.DialContext = nil
	transport.Proxy = http.ProxyURL(proxy)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}
