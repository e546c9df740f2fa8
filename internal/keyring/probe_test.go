package keyring

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/lanyard-dev/lanyard/internal/must"
)

func p256(t *testing.T) Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	k, err := NewKey(private.Public())
	must.Succeed(t, err)
	return k
}

// TestProbe checks which documents a Probe accepts, and that its errors contain no text that a
// server has sent.
func TestProbe(t *testing.T) {
	k := p256(t)
	jwks, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k.JWK()}})
	must.Succeed(t, err)
	var server *httptest.Server
	files := map[string]string{}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(jwks) }))
	defer elsewhere.Close()
	server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, found := files[req.URL.Path]
		if to, moved := strings.CutPrefix(body, "moved to "); moved {
			http.Redirect(rw, req, to, http.StatusFound)
			return
		}
		if !found {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = rw.Write([]byte(body))
	}))
	defer server.Close()
	probe := NewProbe(server.Client(), server.URL+"/", "https://issuer.example")
	config := func(issuer string) string {
		return fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, issuer, issuer+"/jwks")
	}
	for _, tt := range []struct{ config, jwks, want string }{
		{config("https://issuer.example"), string(jwks), ""},
		{"", string(jwks), "HTTP status 503"},
		{config("https://issuer.example"), "", "HTTP status 503"},
		{config("https://other.example"), string(jwks), "another issuer"},
		{config("https://issuer.example"), strings.Repeat(" ", maxDocument+1), "more than"},
		{"topsecret", string(jwks), "not JSON"},
		{`{"issuer":"https://issuer.example","jwks_uri":"https://issuer.example/\u0000topsecret"}`, string(jwks), "not a URL"},
		{`{"issuer":"https://issuer.example","jwks_uri":"` + elsewhere.URL + `/topsecret"}`, string(jwks), "not below"},
		{`{"issuer":"https://issuer.example","jwks_uri":"http://issuer.example/jwks"}`, string(jwks), "not below"},
		{`{"issuer":"https://issuer.example","jwks_uri":"https://issuer.example.topsecret/jwks"}`, string(jwks), "not below"},
		{config("https://issuer.example"), "moved to /moved", ""},
		{config("https://issuer.example"), "moved to /jwks", "redirects"},
		{config("https://issuer.example"), "moved to " + elsewhere.URL + "/topsecret", "redirects"},
		{"moved to " + elsewhere.URL + "/topsecret", string(jwks), "redirects"},
		{config("https://issuer.example"), "moved to https" + strings.TrimPrefix(server.URL, "http"), "redirects"},
	} {
		clear(files)
		files["/moved"] = string(jwks)
		if tt.config != "" {
			files["/.well-known/openid-configuration"] = tt.config
		}
		if tt.jwks != "" {
			files["/jwks"] = tt.jwks
		}
		doc, err := probe(t.Context())
		switch {
		case tt.want == "" && (err != nil || !doc.has(k.ID)):
			t.Errorf("%+v, %v", doc, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "topsecret")):
			t.Errorf("want %s: %v", tt.want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := probe(ctx); err == nil {
		t.Error("read after the end of the context")
	}
}
