package svid_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

// FuzzID checks that two objects never have the same ID, and that every ID can be parsed again.
func FuzzID(f *testing.F) {
	f.Add("example.com", "production", "my-app", "production/my-app", "x")
	f.Add("example.com", "a", "..", "a", "b")
	f.Add("ex_ample.com", "a", "b.c", "a.b", "c")
	f.Fuzz(func(t *testing.T, name, namespace1, name1, namespace2, name2 string) {
		td, err := svid.ParseTrustDomain(name)
		if err != nil {
			return
		}
		one, err := svid.ID(td, "ocirepositories", namespace1, name1)
		if err != nil {
			return
		}
		if again, err := spiffeid.FromString(one.String()); err != nil || again != one || again.TrustDomain() != td {
			t.Errorf("%q cannot be read again: %v", one, err)
		}
		if len(one.String()) > 2048 {
			t.Errorf("the ID has %d characters", len(one.String()))
		}
		two, err := svid.ID(td, "ocirepositories", namespace2, name2)
		if err == nil && two == one && (namespace1 != namespace2 || name1 != name2) {
			t.Errorf("%q is the ID of two objects", one)
		}
	})
}

// FuzzClaims checks that audiences which NewClaims accepts appear unchanged in the token.
func FuzzClaims(f *testing.F) {
	key := newKey(f, elliptic.P256())
	f.Add("registry.example.com,https://a", "one")
	f.Add("a,a", "")
	f.Add(`"],"sub":"x`, "one")
	f.Fuzz(func(t *testing.T, list, jti string) {
		audiences, now := strings.Split(list, ","), time.Now()
		claims, err := svid.NewClaims("https://spiffe.example.com", object(t), audiences, jti, now)
		if err != nil {
			return
		}
		token, err := svid.SignJWT(claims, "kid", key)
		must.Succeed(t, err)
		if _, err := svid.CheckJWT(token, object(t), audiences, now); err != nil {
			t.Errorf("%q: %v", audiences, err)
		}
	})
}

// FuzzCheckJWT checks that a token which CheckJWT accepts has the requested object and audience.
func FuzzCheckJWT(f *testing.F) {
	now, key := time.Unix(1_800_000_000, 0), newKey(f, elliptic.P256())
	claims, err := svid.NewClaims("https://spiffe.example.com", object(f), []string{"a"}, "one", now)
	must.Succeed(f, err)
	token, err := svid.SignJWT(claims, "kid", key)
	must.Succeed(f, err)
	f.Add(token)
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		expires, err := svid.CheckJWT(token, object(t), []string{"a"}, now)
		if err != nil {
			return
		}
		var claims svid.Claims
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		if err != nil || json.Unmarshal(payload, &claims) != nil {
			t.Fatalf("%q is accepted", token)
		}
		if claims.Subject != object(t).String() || len(claims.Audiences) != 1 || claims.Audiences[0] != "a" || !expires.After(now) {
			t.Errorf("%q is accepted: %+v", token, claims)
		}
	})
}

// FuzzParsePublicKey checks that ParsePublicKey accepts only keys on P-256, each in only one
// encoding.
func FuzzParsePublicKey(f *testing.F) {
	der, err := x509.MarshalPKIXPublicKey(&newKey(f, elliptic.P256()).PublicKey)
	must.Succeed(f, err)
	f.Add(der)
	f.Add([]byte{0x30, 0x59})
	f.Fuzz(func(t *testing.T, der []byte) {
		key, err := svid.ParsePublicKey(der)
		if err != nil {
			return
		}
		again, err := x509.MarshalPKIXPublicKey(key)
		if err != nil || key.Curve != elliptic.P256() {
			t.Errorf("%x: %v", der, err)
		}
		if string(again) != string(der) {
			t.Errorf("%x is another encoding of %x", der, again)
		}
	})
}

// FuzzParseChain checks that ParseChain returns one to eight certificates, or an error.
func FuzzParseChain(f *testing.F) {
	w, other := newWorld(f, newKey(f, elliptic.P256())), newKey(f, elliptic.P256())
	f.Add(svid.EncodeCertificate(w.authority))
	f.Add(svid.EncodeCertificate(w.intermediate) + svid.EncodeCertificate(w.authority))
	f.Fuzz(func(t *testing.T, text string) {
		chain, err := svid.ParseChain(text)
		if (err == nil) != (len(chain) > 0) || len(chain) > 8 {
			t.Errorf("%d certificates, %v", len(chain), err)
		}
		if err == nil && svid.CheckChain(chain, object(t), &other.PublicKey, w.now) == nil {
			t.Error("a certificate of a key that nobody else has is accepted")
		}
	})
}
