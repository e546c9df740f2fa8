package oidc

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Paths of a kube-apiserver's documents. Source: Kubernetes, "Service account issuer discovery".
const (
	kubeDiscoveryPath = "/.well-known/openid-configuration"
	kubeKeysPath      = "/openid/v1/jwks"
)

// Proxy serves a kube-apiserver's documents under the issuer's public URL, as the cloud of a
// managed cluster does. It fetches the documents from upstream. The transport must trust upstream
// and be allowed to read both documents (ClusterRole system:service-account-issuer-discovery).
//
// Proxy keeps the issuer in the discovery document. So a verifier notices a cluster with a
// different --service-account-issuer. Proxy replaces the document's jwks_uri, the API server's own
// address, with <issuer>/keys. All other paths of the issuer's host return 404.
func Proxy(issuer string, upstream *url.URL, transport http.RoundTripper) (http.Handler, error) {
	u, err := ParseURL(issuer)
	if err != nil {
		return nil, err
	}
	return &proxy{issuer: u, upstream: upstream, transport: transport}, nil
}

type proxy struct {
	issuer, upstream *url.URL
	transport        http.RoundTripper
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	var document any
	var err error
	switch r.URL.Path {
	case documentURL(p.issuer.Path, discoveryPath):
		var fields map[string]any
		if err = p.fetch(r, kubeDiscoveryPath, &fields); err == nil {
			fields["jwks_uri"] = documentURL(p.issuer.String(), keysPath)
			document = fields
		}
	case documentURL(p.issuer.Path, keysPath):
		var keys json.RawMessage
		err = p.fetch(r, kubeKeysPath, &keys)
		document = keys
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	writeJSON(w, document)
}

func (p *proxy) fetch(r *http.Request, path string, into any) error {
	from := p.upstream.JoinPath(path).String()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, from, nil)
	if err != nil {
		return fmt.Errorf("issuer's API server: %w", err)
	}
	res, err := p.transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("issuer's API server: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("issuer's API server: GET %s: HTTP %d", path, res.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxDocument)).Decode(into); err != nil {
		return fmt.Errorf("issuer's API server: GET %s: %w", path, err)
	}
	return nil
}
