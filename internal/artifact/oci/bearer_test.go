package oci_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

const (
	jwt       = "a.j.wt"
	tokenUser = "token"
)

// shows returns the options of a client that has a token.
func shows(token string) oci.Options {
	return oci.Options{Auth: authn.FromConfig(authn.AuthConfig{Username: tokenUser, RegistryToken: token})}
}

// asks returns a registry that accepts requests with the given Authorization header. It answers
// other requests with the challenge.
func asks(header, challenge string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == header {
			next.ServeHTTP(w, r)
			return
		}
		if challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		registryError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	})
}

// TestTokenIsShownDirectly checks that a token is sent as the registry's challenge demands, and
// that no token server is asked.
func TestTokenIsShownDirectly(t *testing.T) {
	f, _ := artifact("layer")
	const asBearer, asPassword = "Bearer " + jwt, "Basic dG9rZW46YS5qLnd0" // base64 of token:a.j.wt
	for name, registry := range map[string]http.Handler{
		"a realm elsewhere":          asks(asBearer, `Bearer realm="https://`+tokenHost+`/token",service="test"`, f),
		"a realm at home":            asks(asBearer, `Bearer realm="https://`+registryHost+`/token",service="test"`, f),
		"a realm that is no URL":     asks(asBearer, `Bearer realm="lanyard"`, f),
		"no realm":                   asks(asBearer, `Bearer error="invalid_token"`, f),
		"no challenge":               asks(asBearer, "", f),
		"a password":                 asks(asPassword, `Basic realm="test"`, f),
		"nothing where it is asked":  openDoor(asks(asBearer, `Bearer realm="lanyard"`, f)),
		"nothing, and no credential": f,
	} {
		n := serve(t, map[string]http.Handler{registryHost: registry, tokenHost: http.NotFoundHandler()})
		opts := shows(jwt)
		opts.Challenges = &oci.Challenges{}
		for range 2 {
			if err := resolve(t.Context(), n, opts, repository(t, appURL)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(n.sent(tokenHost)) > 0 {
			t.Errorf("%s: the token server was asked", name)
		}
	}
}

// openDoor answers /v2/ without a challenge, like a proxy that protects only repositories.
func openDoor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			w.WriteHeader(http.StatusOK)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TestRefusedToken checks the error for a refused token, for each kind of challenge. The error does
// not quote the token, and no token server gets the token.
func TestRefusedToken(t *testing.T) {
	f, _ := artifact("layer")
	for _, challenge := range []string{"", `Bearer realm="lanyard"`, `Bearer realm="https://` + tokenHost + `/token"`, `Basic realm="test"`} {
		n := serve(t, map[string]http.Handler{registryHost: asks("Bearer other", challenge, f), tokenHost: http.NotFoundHandler()})
		err := resolve(t.Context(), n, shows(jwt), repository(t, appURL))
		if origin.CodeOf(err) != origin.CodeUnauthorized || strings.Contains(err.Error(), jwt) {
			t.Errorf("%q: %v", challenge, err)
		}
		if len(n.sent(tokenHost)) > 0 {
			t.Errorf("%q: the token server was asked", challenge)
		}
	}
}

// TestTokenStaysAtHome checks that a token is sent neither to a redirect's host nor without TLS.
func TestTokenStaysAtHome(t *testing.T) {
	f, _ := artifact("layer")
	// strings.ToLower maps this name to the registry's name, but DNS distinguishes the two.
	const alike = "reg\u0130stry.example.com"
	for to, reached := range map[string]bool{tokenHost: true, alike: false} {
		away := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				http.Redirect(w, r, "https://"+to+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			f.ServeHTTP(w, r)
		})
		n := serve(t, map[string]http.Handler{registryHost: asks("Bearer "+jwt, `Bearer realm="lanyard"`, away), tokenHost: f})
		if err := resolve(t.Context(), n, shows(jwt), repository(t, appURL)); (err == nil) != reached {
			t.Errorf("%s: %v", to, err)
		}
		if len(n.sent(to)) == 0 {
			t.Fatalf("nobody was redirected to %s", to)
		}
		for _, r := range n.sent(to) {
			if r.Header.Get("Authorization") != "" {
				t.Errorf("the token left its registry for %s", to)
			}
		}
	}
}
