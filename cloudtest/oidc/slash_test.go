package oidc_test

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// TestSlashedIssuer: the issuers of AKS end in a slash. The slash is part of the issuer's name. The
// URLs of the documents have no double slash.
func TestSlashedIssuer(t *testing.T) {
	const slashed = "https://westeurope.oic.prod-aks.azure.com/tenant/cluster/"
	i := newIssuer(t, slashed, oidc.RS256)
	static, err := oidc.Static{URL: slashed, JWKS: i.JWKS()}.Handler()
	must.Succeed(t, err)
	apiserver := http.NewServeMux()
	apiserver.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"issuer":"` + slashed + `","jwks_uri":"https://10.0.0.1/openid/v1/jwks"}`))
	})
	apiserver.HandleFunc("GET /openid/v1/jwks", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(i.JWKS()) })
	proxy, err := oidc.Proxy(slashed, &url.URL{Scheme: "https", Host: "127.0.0.1"}, hosts{"127.0.0.1": apiserver})
	must.Succeed(t, err)
	mint := func(issuer string) string {
		raw, err := i.Mint(oidc.Claims{"iss": issuer, "sub": "s", "aud": "a"})
		must.Succeed(t, err)
		return raw
	}
	for name, h := range map[string]http.Handler{"issuer": i, "static": static, "proxy": proxy} {
		if err := verify(t, hosts{i.Host(): h}, mint(slashed)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := verify(t, hosts{i.Host(): h}, mint(slashed[:len(slashed)-1])); !errors.Is(err, oidc.ErrIssuer) {
			t.Errorf("%s: a token without the slash in its issuer: %v", name, err)
		}
	}
}
