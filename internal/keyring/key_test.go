//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package keyring

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestKID checks the thumbprint of the example key in RFC 7638 §3.1.
func TestKID(t *testing.T) {
	const n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMst" +
		"n64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbI" +
		"SD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
	modulus, err := base64.RawURLEncoding.DecodeString(n)
	must.Succeed(t, err)
	k, err := NewKey(&rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: 65537})
	if err != nil || k.ID != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" || k.Algorithm != v1alpha1.RS256 {
		t.Errorf("%+v, %v", k, err)
	}
}

// TestNewKeyRefuses checks that NewKey refuses keys that rings do not use.
func TestNewKeyRefuses(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	must.Succeed(t, err)
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	must.Succeed(t, err)
	for _, public := range []any{small.Public(), edwards, p521.Public(), nil, "key"} {
		if _, err := NewKey(public); err == nil {
			t.Errorf("%T is a key", public)
		}
	}
}

// TestParse parses a ring with a key in each state, and three invalid entries. Parse must omit the
// invalid entries. The ring must accept exactly the keys that are public.
func TestParse(t *testing.T) {
	var status v1alpha1.KeyRingStatus
	kids := map[v1alpha1.KeyState]string{}
	for _, state := range []v1alpha1.KeyState{
		v1alpha1.KeyPending, v1alpha1.KeyPublished, v1alpha1.KeyActive, v1alpha1.KeyRetiring, v1alpha1.KeyRemoved, v1alpha1.KeyRevoked, "Unknown",
	} {
		e, err := p256(t).Entry()
		must.Succeed(t, err)
		e.State = state
		kids[state] = e.KID
		status.Keys = append(status.Keys, e)
	}
	liar := status.Keys[2]
	liar.KID = strings.Repeat("x", 43)
	wrong := status.Keys[2]
	wrong.Algorithm = v1alpha1.RS256
	broken := status.Keys[2]
	broken.PublicKey = "key"
	status.Keys = append(status.Keys, liar, wrong, broken)

	ring, err := Parse(&status)
	if err == nil || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), liar.KID) {
		t.Errorf("Parse: %v", err)
	}
	var public []string
	for _, k := range ring.Public() {
		public = append(public, k.ID)
	}
	if want := []string{kids["Pending"], kids["Published"], kids["Active"], kids["Retiring"]}; !slices.Equal(public, want) {
		t.Errorf("public: %v, want %v", public, want)
	}
	if active := ring.ActiveKeys(); len(active) != 1 || active[0].ID != kids["Active"] {
		t.Errorf("active: %v", active)
	}
	for state, kid := range kids {
		if got, want := ring.Accepts(kid), slices.Contains(public, kid); got != want {
			t.Errorf("accepts a key that is %s: %v", state, got)
		}
	}
	if ring.Accepts(liar.KID) || ring.Accepts("") || (Ring{}).Accepts(kids["Active"]) {
		t.Error("accepts a kid that is no key's")
	}
}

// TestParseDocument checks which kids of a document are valid and which are invalid. A text that is
// not a key set must be an error.
func TestParseDocument(t *testing.T) {
	k := p256(t)
	good, err := json.Marshal(k.JWK())
	must.Succeed(t, err)
	renamed := k.JWK()
	renamed.KeyID = "renamed"
	bad, err := json.Marshal(renamed)
	must.Succeed(t, err)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	leak, err := json.Marshal(jose.JSONWebKey{Key: private, KeyID: "leak"})
	must.Succeed(t, err)
	for _, tt := range []struct {
		document string
		want     string
	}{
		{fmt.Sprintf(`{"keys":[%s]}`, good), k.ID + " []"},
		{`{"keys":[]}`, " []"},
		{fmt.Sprintf(`{"keys":[%s,%s,%s]}`, good, bad, leak), k.ID + " [renamed leak]"},
		{`{"keys":[{"kty":"oct","k":"AAAA","kid":"symmetric"},7]}`, " [symmetric ]"},
		{`{"keys":[` + strings.Repeat(`{"kid":"a"},`, 100) + `{}]}`, " [a a a a a a a a]"},
		{`{}`, "error"},
		{`{"keys":null}`, "error"},
		{`[]`, "error"},
		{``, "error"},
		{`<html>`, "error"},
	} {
		doc, err := ParseDocument([]byte(tt.document))
		got := "error"
		if err == nil {
			got = fmt.Sprint(strings.Join(doc.KIDs, ","), " ", doc.Invalid)
		}
		if got != tt.want {
			t.Errorf("%.40s: %s, want %s", tt.document, got, tt.want)
		}
	}
}

// FuzzParseDocument checks that the KIDs of any document have the length of a thumbprint.
func FuzzParseDocument(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA","kid":"a"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"b"},{"kid":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := ParseDocument(data)
		if err != nil {
			return
		}
		for _, kid := range doc.KIDs {
			if len(kid) != 43 {
				t.Errorf("kid %q is no thumbprint", kid)
			}
		}
		if len(doc.Invalid) > maxStrangers {
			t.Errorf("%d strangers", len(doc.Invalid))
		}
	})
}

// TestConsequences compares the text that people read before a revocation with a golden file.
func TestConsequences(t *testing.T) {
	ring := &v1alpha1.KeyRing{}
	ring.Name = IssuerRing
	ring.Status.PublishDelay.Duration = day
	for _, text := range []string{
		"retiring Retiring 1h", "active Active 48h", "known Published 25h",
		"alone Active 48h ES256", "young Pending 1h ES256", "other Active 48h ES384", "new Published 1h ES384",
	} {
		ring.Status.Keys = append(ring.Status.Keys, key(t, text))
	}
	var all strings.Builder
	for _, kid := range []string{"active", "other", "alone", "retiring", "known"} {
		c, err := ConsequencesOf(ring, kid, today())
		must.Succeed(t, err)
		fmt.Fprintf(&all, "# revoke %s\n%s\n\n", kid, strings.Join(c.Lines(), "\n"))
	}
	golden.Compare(t, "testdata/consequences.golden", []byte(all.String()))
	if _, err := ConsequencesOf(ring, "nobody", today()); err == nil {
		t.Error("consequences of a key that there is not")
	}
}

// TestWishes checks what Rotate, Confirm and Revoke write into the spec.
func TestWishes(t *testing.T) {
	ring := &v1alpha1.KeyRing{}
	for _, text := range []string{"a Active 48h", "b Published 48h", "c Pending 1h"} {
		ring.Status.Keys = append(ring.Status.Keys, key(t, text))
	}
	Rotate(ring, today().In(time.FixedZone("", 3600)))
	if ring.Spec.Rotate != "2026-03-01T12:00:00Z" {
		t.Errorf("rotate: %s", ring.Spec.Rotate)
	}
	for kid, ok := range map[string]bool{"a": false, "b": true, "c": true, "x": false} {
		if err := Confirm(ring, kid, true); (err == nil) != ok {
			t.Errorf("confirm %s: %v", kid, err)
		}
		if err := Revoke(ring, kid); (err == nil) != (kid != "x") {
			t.Errorf("revoke %s: %v", kid, err)
		}
	}
	if err := Confirm(ring, "b", false); err != nil || len(ring.Spec.Confirm) != 2 || ring.Spec.Confirm[1].SkipDelay {
		t.Errorf("confirm again: %v, %v", ring.Spec.Confirm, err)
	}
	if err := Revoke(ring, "a"); err != nil || len(ring.Spec.Revoke) != 3 {
		t.Errorf("revoke again: %v, %v", ring.Spec.Revoke, err)
	}
	ring.Status.Keys = ring.Status.Keys[:1]
	if err := Revoke(ring, "a"); err != nil || len(ring.Spec.Revoke) != 1 {
		t.Errorf("kids that the ring has forgotten: %v, %v", ring.Spec.Revoke, err)
	}
}
