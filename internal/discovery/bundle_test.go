package discovery_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/discovery"
	"github.com/lanyard-dev/lanyard/internal/discovery/document"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// trusting returns the status of a trust domain's KeyRing with an active key, and with one
// authority in each of the given states.
func trusting(t *testing.T, states ...identityv1.KeyState) *identityv1.KeyRingStatus {
	t.Helper()
	status, _ := ring(t, identityv1.KeyActive)
	status.TrustDomain, status.Revision = "example.com", 7
	domain := spiffeid.RequireTrustDomainFromString(status.TrustDomain)
	for _, state := range states {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must.Succeed(t, err)
		certificate, err := svid.NewAuthority(domain, key, time.Hour, time.Now())
		must.Succeed(t, err)
		authority, err := keyring.NewAuthority(certificate, nil)
		must.Succeed(t, err)
		entry := authority.Entry()
		entry.State = state
		status.Authorities = append(status.Authorities, entry)
	}
	return status
}

// TestBundle parses the bundle with go-spiffe, and checks its entries against SPIFFE's
// specifications.
func TestBundle(t *testing.T) {
	status := trusting(t, identityv1.KeyPending, identityv1.KeyPublished, identityv1.KeyActive, identityv1.KeyRetiring, identityv1.KeyRemoved, identityv1.KeyRevoked)
	d, err := document.OfRing(url, status)
	must.Succeed(t, err)
	domain := spiffeid.RequireTrustDomainFromString("example.com")
	bundle, err := spiffebundle.Parse(domain, d.Bundle)
	must.Succeed(t, err)
	if n := len(bundle.X509Authorities()); n != 4 {
		t.Errorf("the bundle has %d authorities, want those that are Pending, Published, Active and Retiring", n)
	}
	if _, found := bundle.FindJWTAuthority(status.Keys[0].KID); !found || len(bundle.JWTAuthorities()) != 1 {
		t.Error("the bundle lacks the key of JWT-SVIDs")
	}
	if sequence, _ := bundle.SequenceNumber(); sequence != 7 {
		t.Errorf("sequence %d", sequence)
	}
	if hint, _ := bundle.RefreshHint(); hint != 15*time.Minute {
		t.Errorf("refresh hint %v", hint)
	}
	var raw struct {
		Keys []map[string]any `json:"keys"`
	}
	must.Succeed(t, json.Unmarshal(d.Bundle, &raw))
	for _, key := range raw.Keys {
		chain, _ := key["x5c"].([]any)
		switch key["use"] {
		case "x509-svid": // must have no kid: SPIFFE Trust Domain and Bundle §4.2.3
			if key["kid"] != nil || len(chain) != 1 {
				t.Errorf("an authority is published as %v", key)
			}
		case "jwt-svid":
			if key["kid"] != status.Keys[0].KID || chain != nil {
				t.Errorf("a key is published as %v", key)
			}
		default:
			t.Errorf("the bundle has %v", key)
		}
	}
	// The key set is for OpenID Connect: it has no authorities.
	if err := json.Unmarshal(d.KeySet, &raw); err != nil || len(raw.Keys) != 1 || raw.Keys[0]["use"] != "sig" {
		t.Errorf("the key set is %s", d.KeySet)
	}
}

// TestBundleAlone checks a trust domain without an issuer. It must have a bundle and no other
// document.
func TestBundleAlone(t *testing.T) {
	status := trusting(t, identityv1.KeyPending)
	status.Issuer, status.Keys = "", nil
	d, err := document.OfRing("", status)
	if err != nil || d.Bundle == nil || d.KeySet != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	dir := t.TempDir()
	written, err := document.Export(dir, d)
	if err != nil || len(written) != 1 {
		t.Errorf("%q, %v", written, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "bundle")); err != nil || string(data) != string(d.Bundle) {
		t.Error(err)
	}
	off := status.DeepCopy()
	off.TrustDomain = ""
	if _, err := document.OfRing("", off); !errors.Is(err, document.ErrNoKeys) {
		t.Errorf("switched off: %v", err)
	}
	status.Authorities = nil
	if _, err := document.OfRing("", status); !errors.Is(err, document.ErrNoKeys) {
		t.Errorf("without authorities: %v", err)
	}
}

// TestServeBundle checks the bundle's URL: 503 before there are keys, and 404 for an issuer that
// has no trust domain.
func TestServeBundle(t *testing.T) {
	issuer, err := discovery.NewIssuer(url)
	must.Succeed(t, err)
	handler, err := discovery.NewHandler(issuer)
	must.Succeed(t, err)
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url+"/bundle", nil))
		return w
	}
	if w := get(); w.Code != http.StatusServiceUnavailable || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("before there are keys: %d", w.Code)
	}
	d, err := document.OfRing(url, trusting(t, identityv1.KeyPending))
	must.Succeed(t, err)
	issuer.Publish(d)
	if w := get(); w.Code != http.StatusOK || w.Body.String() != string(d.Bundle) || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("ETag") == "" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
	plain, _ := documents(t, identityv1.KeyActive)
	issuer.Publish(plain)
	if w := get(); w.Code != http.StatusNotFound {
		t.Errorf("no trust domain: %d", w.Code)
	}
}

// TestProbeSeesWhatIsServed reads the documents with the token server's probe. A key counts as
// published only if both the key set and the SPIFFE bundle have it.
func TestProbeSeesWhatIsServed(t *testing.T) {
	status := trusting(t, identityv1.KeyActive)
	var served *discovery.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { served.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	status.Issuer = server.URL
	issuer, err := discovery.NewIssuer(server.URL)
	must.Succeed(t, err)
	if served, err = discovery.NewHandler(issuer); err != nil {
		t.Fatal(err)
	}
	publish := func(status *identityv1.KeyRingStatus) *document.Set {
		d, err := document.OfRing(server.URL, status)
		must.Succeed(t, err)
		return d
	}
	probe := keyring.NewSPIFFEProbe(server.Client(), server.URL, server.URL)
	if _, err := probe(t.Context()); err == nil {
		t.Error("503 is taken for a document")
	}
	good := publish(status)
	issuer.Publish(good)
	document, err := probe(t.Context())
	if err != nil || len(document.KIDs) != 2 || len(document.Partial)+len(document.Invalid) > 0 {
		t.Fatalf("%+v, %v", document, err)
	}
	mixed, other := *good, publish(anotherRing(t, server.URL))
	mixed.KeySet = other.KeySet
	issuer.Publish(&mixed)
	document, err = probe(t.Context())
	if err != nil || len(document.KIDs) != 1 || document.KIDs[0] != status.Authorities[0].ID || len(document.Partial) != 2 {
		t.Errorf("a key in one document only: %+v, %v", document, err)
	}
	for what, bundle := range map[string]string{"no JSON": "x", "no keys": `{}`} {
		mixed := *good
		mixed.Bundle = []byte(bundle)
		issuer.Publish(&mixed)
		if _, err := probe(t.Context()); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	foreign := *good
	foreign.Bundle = []byte(`{"keys":[{"use":"wit-svid","kty":"EC"},{"use":"x509-svid"}]}`)
	issuer.Publish(&foreign)
	if document, err := probe(t.Context()); err != nil || len(document.Invalid) != 2 {
		t.Errorf("foreign entries: %+v, %v", document, err)
	}
}

// anotherRing returns the status of another KeyRing whose issuer has this URL.
func anotherRing(t *testing.T, url string) *identityv1.KeyRingStatus {
	t.Helper()
	status := trusting(t, identityv1.KeyActive)
	status.Issuer = url
	return status
}
