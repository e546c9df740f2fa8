package discovery_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/discovery"
	"github.com/lanyard-dev/lanyard/internal/discovery/document"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const url = "https://issuer.example.com/tenants"

// ring returns the status of a KeyRing that has one key in each of the given states. It also
// returns the keys' IDs.
func ring(t *testing.T, states ...identityv1.KeyState) (*identityv1.KeyRingStatus, []string) {
	t.Helper()
	status := &identityv1.KeyRingStatus{Issuer: url, PublishDelay: metav1.Duration{Duration: time.Hour}}
	var kids []string
	for _, state := range states {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must.Succeed(t, err)
		key, err := keyring.NewKey(private.Public())
		must.Succeed(t, err)
		entry, err := key.Entry()
		must.Succeed(t, err)
		entry.State = state
		status.Keys = append(status.Keys, entry)
		kids = append(kids, key.ID)
	}
	return status, kids
}

func documents(t *testing.T, states ...identityv1.KeyState) (*document.Set, []string) {
	t.Helper()
	status, kids := ring(t, states...)
	d, err := document.OfRing(url, status)
	must.Succeed(t, err)
	return d, kids
}

// TestOfRing asserts which keys are published: keys that will sign, that sign or that have signed,
// but no removed or revoked keys.
func TestOfRing(t *testing.T) {
	d, kids := documents(t, identityv1.KeyPending, identityv1.KeyPublished, identityv1.KeyActive, identityv1.KeyRetiring, identityv1.KeyRemoved, identityv1.KeyRevoked)
	if !slices.Equal(d.KIDs, kids[:4]) {
		t.Errorf("published are %q, want %q", d.KIDs, kids[:4])
	}
	var config map[string]any
	must.Succeed(t, json.Unmarshal(d.Configuration, &config))
	const want = `{"issuer":"` + url + `","jwks_uri":"` + url + `/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256"]}`
	if string(d.Configuration) != want {
		t.Errorf("the discovery document is\n%s\nwant\n%s", d.Configuration, want)
	}
	var set jose.JSONWebKeySet
	must.Succeed(t, json.Unmarshal(d.KeySet, &set))
	for _, key := range set.Keys {
		if !key.IsPublic() || key.Use != "sig" || key.Algorithm != "ES256" {
			t.Errorf("a key is published as %+v", key)
		}
	}
	if d.MaxAge != 15*time.Minute {
		t.Errorf("services may keep the documents for %s, want a quarter of the publish delay", d.MaxAge)
	}

	for name, change := range map[string]func(*identityv1.KeyRingStatus){
		"no keys":        func(s *identityv1.KeyRingStatus) { s.Keys = nil },
		"only old keys":  func(s *identityv1.KeyRingStatus) { s.Keys = s.Keys[4:] },
		"another issuer": func(s *identityv1.KeyRingStatus) { s.Issuer = "https://other.example.com" },
	} {
		status, _ := ring(t, identityv1.KeyPending, identityv1.KeyPublished, identityv1.KeyActive, identityv1.KeyRetiring, identityv1.KeyRemoved, identityv1.KeyRevoked)
		change(status)
		if _, err := document.OfRing(url, status); !errors.Is(err, document.ErrNoKeys) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNewDocumentsRefusesPrivateKeys asserts that New refuses private keys and keys without an ID.
func TestNewDocumentsRefusesPrivateKeys(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	for name, key := range map[string]jose.JSONWebKey{
		"a private key":    {Key: private, KeyID: "1", Algorithm: "RS256"},
		"a symmetric key":  {Key: []byte("secret"), KeyID: "1", Algorithm: "HS256"},
		"a key with no ID": {Key: private.Public(), Algorithm: "RS256"},
		"no key":           {KeyID: "1"},
	} {
		if _, err := document.New(url, []jose.JSONWebKey{key}, time.Hour); err == nil {
			t.Errorf("%s is published", name)
		}
	}
}

func request(t *testing.T, h http.Handler, method, target string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// TestHandler asserts the status, headers and body of the handler's answers.
func TestHandler(t *testing.T) {
	i, err := discovery.NewIssuer(url)
	must.Succeed(t, err)
	h, err := discovery.NewHandler(i)
	must.Succeed(t, err)
	const config, keys = "/tenants/.well-known/openid-configuration", "/tenants/jwks"
	for _, path := range []string{config, keys} {
		if answer := request(t, h, http.MethodGet, path); answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("without keys %s is answered with %s, %s", path, answer.Status, answer.Header.Get("Cache-Control"))
		}
	}
	d, kids := documents(t, identityv1.KeyActive)
	i.Publish(d)
	for path, want := range map[string][]byte{config: d.Configuration, keys: d.KeySet} {
		answer := request(t, h, http.MethodGet, path)
		body, err := io.ReadAll(answer.Body)
		must.Succeed(t, err)
		if answer.StatusCode != http.StatusOK || string(body) != string(want) || answer.Header.Get("Cache-Control") != "public, max-age=900" {
			t.Errorf("GET %s: %s %s %s", path, answer.Status, answer.Header, body)
		}
		tag := answer.Header.Get("ETag")
		if again := request(t, h, http.MethodGet, path, "If-None-Match", tag); again.StatusCode != http.StatusNotModified {
			t.Errorf("GET %s with the tag %s: %s", path, tag, again.Status)
		}
		if head := request(t, h, http.MethodHead, path); head.StatusCode != http.StatusOK || head.Header.Get("ETag") != tag {
			t.Errorf("HEAD %s: %s %s", path, head.Status, head.Header)
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
			if answer := request(t, h, method, path); answer.StatusCode != http.StatusMethodNotAllowed || answer.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %s", method, path, answer.Status)
			}
		}
	}
	for _, path := range []string{"/", "/jwks", "/.well-known/openid-configuration", "/tenants", "/tenants/jwks/", "/other/jwks"} {
		if answer := request(t, h, http.MethodGet, path); answer.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %s", path, answer.Status)
		}
	}
	// The key set was served twice: once with a body, and once with the status 304. The metric
	// counts both, because the service has the key in both cases.
	if n := testutil.ToFloat64(h); n != 2 {
		t.Errorf("the key %s was counted %v times, want 2", kids[0], n)
	}

	next, _ := documents(t, identityv1.KeyActive)
	i.Publish(next)
	if answer := request(t, h, http.MethodGet, keys, "If-None-Match", `"old"`); answer.StatusCode != http.StatusOK {
		t.Errorf("a changed key set: %s", answer.Status)
	}
}

// TestTwoIssuers asserts that the path of a request selects the issuer. If two issuers share a
// path, the host selects the issuer.
func TestTwoIssuers(t *testing.T) {
	publish := func(url string) *discovery.Issuer {
		i, err := discovery.NewIssuer(url)
		must.Succeed(t, err)
		status, _ := ring(t, identityv1.KeyActive)
		status.Issuer = url
		d, err := document.OfRing(url, status)
		must.Succeed(t, err)
		i.Publish(d)
		return i
	}
	asked := func(h http.Handler, target string) string {
		var config struct{ Issuer string }
		if err := json.NewDecoder(request(t, h, http.MethodGet, target).Body).Decode(&config); err != nil {
			return err.Error()
		}
		return config.Issuer
	}
	const a, b, c = "https://a.example.com", "https://b.example.com", "https://a.example.com/spiffe"
	h, err := discovery.NewHandler(publish(a), publish(b), publish(c))
	must.Succeed(t, err)
	for target, want := range map[string]string{
		"http://a.example.com" + document.ConfigurationPath:      a,
		"http://b.example.com:8443" + document.ConfigurationPath: b,
		"http://anything/spiffe" + document.ConfigurationPath:    c,
	} {
		if got := asked(h, target); got != want {
			t.Errorf("%s has the issuer %q, want %q", target, got, want)
		}
	}
	if answer := request(t, h, http.MethodGet, "http://anything"+document.ConfigurationPath); answer.StatusCode != http.StatusNotFound {
		t.Errorf("an ambiguous host: %s", answer.Status)
	}
	if _, err := discovery.NewHandler(publish(a), publish(a)); err == nil {
		t.Error("one URL is served twice")
	}
}

// TestExport asserts that the exported files have the same content as the served documents.
func TestExport(t *testing.T) {
	d, _ := documents(t, identityv1.KeyActive)
	dir := t.TempDir()
	for range 2 { // the second export replaces the files
		written, err := document.Export(dir, d)
		if err != nil || len(written) != 2 {
			t.Fatal(written, err)
		}
	}
	for path, want := range map[string][]byte{"jwks": d.KeySet, ".well-known/openid-configuration": d.Configuration} {
		got, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s has %s, %v", path, got, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.new")); err != nil || len(left) > 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// TestMirror asserts that a mirror serves the API server's keys only if the API server's issuer is
// the mirror's URL.
func TestMirror(t *testing.T) {
	status, kids := ring(t, identityv1.KeyActive)
	issuer := "https://cluster.example.com"
	status.Issuer = issuer
	published, err := document.OfRing(issuer, status)
	must.Succeed(t, err)
	said, broken := issuer, false
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case broken:
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == document.ConfigurationPath:
			_, _ = io.WriteString(w, `{"issuer":"`+said+`","jwks_uri":"https://10.0.0.1:6443/openid/v1/jwks"}`)
		case r.URL.Path == "/openid/v1/jwks":
			_, _ = w.Write(published.KeySet)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer api.Close()
	client, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host:          api.URL,
		ContentConfig: rest.ContentConfig{GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	must.Succeed(t, err)
	i, err := discovery.NewIssuer(issuer)
	must.Succeed(t, err)
	m := &discovery.Mirror{API: client, Issuer: i, Log: slog.New(slog.DiscardHandler)}

	said = "https://kubernetes.default.svc"
	if err := m.Step(t.Context()); err == nil || !strings.Contains(err.Error(), "--service-account-issuer") || i.Documents() != nil {
		t.Errorf("with another issuer: %v", err)
	}
	said = issuer
	must.Succeed(t, m.Step(t.Context()))
	if d := i.Documents(); !slices.Equal(d.KIDs, kids) || !strings.Contains(string(d.Configuration), `"jwks_uri":"`+issuer+`/jwks"`) {
		t.Errorf("the mirror serves %s", d.Configuration)
	}
	broken = true
	if err := m.Step(t.Context()); err == nil || i.Documents() == nil {
		t.Error("the last documents are gone when the API server fails")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx); err != nil {
		t.Error(err)
	}
}
