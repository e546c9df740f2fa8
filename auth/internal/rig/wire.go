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

// Wire returns a transport that connects every host name to a server with this handler. Use it for
// answers that a correct cloud never gives.
func Wire(tb testing.TB, handler http.HandlerFunc) *http.Transport {
	tb.Helper()
	server := httptest.NewTLSServer(handler)
	tb.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return &http.Transport{
		DialContext: dialTo(server.Listener.Addr().String()),
		// ServerName is the name in the server's certificate; it is used for every host.
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}
}

// dialTo returns a dial function that always connects to address.
func dialTo(address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// Insecure returns a transport that does not verify certificates. Every provider must refuse it.
func Insecure(tb testing.TB) *http.Transport {
	tb.Helper()
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // that is the point
}

// Nowhere returns an address where no server listens.
func Nowhere(tb testing.TB) string {
	tb.Helper()
	closed, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	Must(tb, err)
	Must(tb, closed.Close())
	return closed.Addr().String()
}

// ConnectTo starts a proxy that connects every CONNECT request to the same address.
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

// splice answers a CONNECT request and connects the client with the given address.
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
