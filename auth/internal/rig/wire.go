package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// Wire is a transport to a server that answers under every name, for answers that no well-behaved cloud gives.
func Wire(tb testing.TB, handler http.HandlerFunc) *http.Transport {
	tb.Helper()
	server := httptest.NewTLSServer(handler)
	tb.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return &http.Transport{
		DialContext: dialTo(server.Listener.Addr().String()),
		// The name in the server's certificate, whatever host is asked for.
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}
}

// dialTo leads to address, whatever is dialled.
func dialTo(address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// Insecure is a transport that verifies nothing, which no provider may take.
func Insecure(tb testing.TB) *http.Transport {
	tb.Helper()
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // that is the point
}

// Nowhere is an address where nobody listens.
func Nowhere(tb testing.TB) string {
	tb.Helper()
	closed, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	Must(tb, err)
	Must(tb, closed.Close())
	return closed.Addr().String()
}

// ConnectTo is a proxy that leads every CONNECT to one address.
func ConnectTo(tb testing.TB, address string) *url.URL {
	tb.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(rw, "CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		splice(r.Context(), rw, address)
	}))
	tb.Cleanup(server.Close)
	proxy, err := url.Parse(server.URL)
	Must(tb, err)
	return proxy
}

// splice answers a CONNECT request with a connection to address.
func splice(ctx context.Context, rw http.ResponseWriter, address string) {
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		http.Error(rw, "no", http.StatusBadGateway)
		return
	}
	defer func() { _ = far.Close() }()
	near, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = near.Close() }()
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(far, near) }()
	_, _ = io.Copy(near, far)
}
