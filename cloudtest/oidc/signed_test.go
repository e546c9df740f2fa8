package oidc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// TestSignedOddities checks that a signed token is refused if two parsers could read it
// differently, or if the published key contains the private key.
func TestSignedOddities(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	const issuer = "https://issuer.example"
	h := func(key jose.JSONWebKey) hosts {
		mux := http.NewServeMux()
		mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"%s/keys"}`, issuer, issuer)
		})
		mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key}})
		})
		return hosts{"issuer.example": mux}
	}
	public := h(jose.JSONWebKey{Key: private.Public(), KeyID: "k"})
	exp := time.Now().Add(time.Hour).Unix()
	for name, tt := range map[string]struct {
		hosts           hosts
		headers, claims string
		want            error
	}{
		"good":               {public, "", `"sub":"s"`, nil},
		"subject twice":      {public, "", `"sub":"s","sub":"t"`, oidc.ErrMalformed},
		"subject's case":     {public, "", `"Sub":"s"`, oidc.ErrMalformed},
		"expiry twice":       {public, "", fmt.Sprintf(`"sub":"s","exp":%d`, exp+1), oidc.ErrMalformed},
		"subject as a list":  {public, "", `"sub":["s"]`, oidc.ErrMalformed},
		"subject is null":    {public, "", `"sub":null`, oidc.ErrMalformed},
		"critical extension": {public, "x", `"sub":"s"`, oidc.ErrSignature},
		"private key":        {h(jose.JSONWebKey{Key: private, KeyID: "k"}), "", `"sub":"s"`, oidc.ErrKey},
	} {
		o := (&jose.SignerOptions{}).WithHeader("kid", "k")
		if tt.headers != "" {
			o = o.WithCritical(tt.headers).WithHeader(jose.HeaderKey(tt.headers), true)
		}
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: private}, o)
		must.Succeed(t, err)
		signed, err := signer.Sign(fmt.Appendf(nil, `{"iss":%q,"aud":"a","exp":%d,%s}`, issuer, exp, tt.claims))
		must.Succeed(t, err)
		raw, err := signed.CompactSerialize()
		must.Succeed(t, err)
		if err := verify(t, tt.hosts, raw); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// TestIssuerChecksItsOwn checks that an issuer accepts its own signatures only. It accepts an older
// key after a rotation, until the key is retired.
func TestIssuerChecksItsOwn(t *testing.T) {
	issuer, err := oidc.NewIssuer("https://issuer.example", oidc.RS256)
	must.Succeed(t, err)
	other, err := oidc.NewIssuer("https://issuer.example", oidc.ES256)
	must.Succeed(t, err)
	claims := oidc.Claims{"sub": "s", "aud": "a"}
	read := func(mint func(oidc.Claims) (string, error)) oidc.Token {
		t.Helper()
		raw, err := mint(claims)
		must.Succeed(t, err)
		token, err := oidc.Read(raw)
		must.Succeed(t, err)
		return token
	}
	own := read(issuer.Mint)
	if own.Algorithm != "RS256" {
		t.Errorf("algorithm %q", own.Algorithm)
	}
	must.Succeed(t, issuer.Rotate(false))
	if err := issuer.CheckSignature(own); err != nil {
		t.Errorf("own token: %v", err)
	}
	for name, tt := range map[string]struct {
		token oidc.Token
		want  error
	}{
		"forged":      {read(issuer.Forge), oidc.ErrSignature},
		"another's":   {read(other.Mint), oidc.ErrKey},
		"none at all": {oidc.Token{}, oidc.ErrMalformed},
	} {
		if err := issuer.CheckSignature(tt.token); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	must.Succeed(t, issuer.Rotate(true))
	if err := issuer.CheckSignature(own); !errors.Is(err, oidc.ErrKey) {
		t.Errorf("with a retired key: %v", err)
	}
	for offset, want := range map[time.Duration]error{0: nil, 61 * time.Minute: oidc.ErrExpired, -6 * time.Minute: oidc.ErrNotYetValid} {
		if err := own.CheckTime(time.Now().Add(offset), time.Second); !errors.Is(err, want) {
			t.Errorf("after %s: %v", offset, err)
		}
	}
}
