package oci_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // storage of the registry
	"github.com/sirupsen/logrus"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Host names that httptest's certificate covers.
const (
	registryHost = "registry.example.com"
	blobHost     = "blobs.example.com"
	tokenHost    = "auth.example.com"
)

const (
	username = "AWS"
	password = "s3cret-registry-password"
)

// network sends requests to servers of this process, chosen by host name, and records the requests.
type network struct {
	*http.Transport
	mu       sync.Mutex
	requests []*http.Request
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.requests = append(n.requests, req.Clone(req.Context()))
	n.mu.Unlock()
	return n.Transport.RoundTrip(req)
}

// sent returns the requests to a host.
func (n *network) sent(host string) []*http.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*http.Request
	for _, r := range n.requests {
		if r.URL.Host == host {
			out = append(out, r)
		}
	}
	return out
}

// serve starts a TLS server per host.
func serve(tb testing.TB, hosts map[string]http.Handler) *network {
	tb.Helper()
	return serveBoth(tb, hosts, nil)
}

// serveBoth starts a TLS server for each host in hosts, and a server without TLS for each host in
// plain.
func serveBoth(tb testing.TB, hosts, plain map[string]http.Handler) *network {
	tb.Helper()
	roots := x509.NewCertPool()
	addresses := make(map[string]string)
	for host, handler := range plain {
		server := httptest.NewServer(handler)
		tb.Cleanup(server.Close)
		addresses[net.JoinHostPort(host, "80")] = server.Listener.Addr().String()
	}
	for host, handler := range hosts {
		server := httptest.NewUnstartedServer(handler)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		tb.Cleanup(server.Close)
		roots.AddCert(server.Certificate())
		addresses[host+":443"] = server.Listener.Addr().String()
	}
	n := &network{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			to, ok := addresses[address]
			if !ok {
				return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
			}
			return (&net.Dialer{}).DialContext(ctx, network, to)
		},
	}}
	tb.Cleanup(n.CloseIdleConnections)
	return n
}

// distribution returns the registry of the project Distribution. It stores its content in a
// temporary folder.
func distribution(t *testing.T) http.Handler {
	t.Helper()
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem":  configuration.Parameters{"rootdirectory": t.TempDir()},
			"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
		},
	}
	config.HTTP.Secret = "for one test"
	config.Log.Level = "panic"
	config.Log.AccessLog.Disabled = true
	return handlers.NewApp(t.Context(), config)
}

// basic refuses requests without the right user name and password.
func basic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != username || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			registryError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func registryError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q,"detail":"a long detail"}]}`, code, message)
}

func repository(tb testing.TB, url string) oci.Repository {
	tb.Helper()
	repo, err := oci.ParseURL(url)
	must.Succeed(tb, err)
	return repo
}

func connect(t *testing.T, n http.RoundTripper, url string) *oci.Client {
	t.Helper()
	client, err := oci.Connect(t.Context(), repository(t, url), oci.Options{
		Auth: oci.Basic(username, password), Transport: n,
	})
	must.Succeed(t, err)
	return client
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// fake is a registry with fixed content. Tests can make it answer wrongly.
type fake struct {
	manifests map[string]string // tag or digest -> body
	types     map[string]string // body's digest -> media type; default OCI manifest
	blobs     map[string]string // digest -> body
	override  func(w http.ResponseWriter, r *http.Request) bool
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.override != nil && f.override(w, r) {
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
	last := parts[len(parts)-1]
	switch {
	case r.URL.Path == "/v2/":
		_, _ = io.WriteString(w, "{}")
	case strings.Contains(r.URL.Path, "/manifests/"):
		body, ok := f.manifests[last]
		if !ok {
			registryError(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown")
			return
		}
		mediaType, ok := f.types[digestOf(body)]
		if !ok {
			mediaType = "application/vnd.oci.image.manifest.v1+json"
		}
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Docker-Content-Digest", digestOf(body))
		_, _ = io.WriteString(w, body)
	case strings.Contains(r.URL.Path, "/blobs/"):
		body, ok := f.blobs[last]
		if !ok {
			registryError(w, http.StatusNotFound, "BLOB_UNKNOWN", "blob unknown")
			return
		}
		_, _ = io.WriteString(w, body)
	default:
		http.Error(w, "an unknown route", http.StatusTeapot)
	}
}

// artifact returns a fake with one artifact, which has one layer and the tag latest. It also
// returns the manifest's digest.
func artifact(layer string) (*fake, string) {
	manifest := fmt.Sprintf(`{"schemaVersion":2,"config":{"mediaType":"application/vnd.cncf.flux.config.v1+json","digest":%q,"size":2},`+
		`"layers":[{"mediaType":"application/vnd.cncf.flux.content.v1.tar+gzip","digest":%q,"size":%d}],"annotations":{"a":"1"}}`,
		digestOf("{}"), digestOf(layer), len(layer))
	digest := digestOf(manifest)
	return &fake{
		manifests: map[string]string{"latest": manifest, digest: manifest},
		blobs:     map[string]string{digestOf(layer): layer},
	}, digest
}

func basicHeader() string {
	return base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
}

// noSecret fails if an error shows a credential.
func noSecret(t *testing.T, err error, secrets ...string) {
	t.Helper()
	for _, secret := range append(secrets, password, basicHeader()) {
		for _, text := range []string{err.Error(), fmt.Sprintf("%v", err), fmt.Sprintf("%+v", err)} {
			if strings.Contains(text, secret) {
				t.Errorf("a credential is shown: %s", text)
			}
		}
	}
}
