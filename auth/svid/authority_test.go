package svid_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth/svid"
)

func certificatePEM(c *x509.Certificate) []byte { return []byte(svid.EncodeCertificate(c)) }

func keyPEM(tb testing.TB, key crypto.PrivateKey) []byte {
	tb.Helper()
	der := valueOf[[]byte](tb)(x509.MarshalPKCS8PrivateKey(key))
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TestParseAuthority checks that ParseAuthority accepts a Secret with a usable CA, and refuses all
// others.
func TestParseAuthority(t *testing.T) {
	for name, key := range map[string]crypto.Signer{"P-256": newKey(t, elliptic.P256()), "P-384": newKey(t, elliptic.P384()), "RSA": newRSA(t, 2048)} {
		w := newWorld(t, key)
		ca := w.foreign(t, nil)
		got, private, err := svid.ParseAuthority(certificatePEM(ca), keyPEM(t, key), w.domain, w.now)
		if err != nil || !got.Equal(ca) || private == nil {
			t.Errorf("%s: %v", name, err)
		}
		// cert-manager writes a chain into tls.crt, so more certificates may follow the CA.
		if _, _, err := svid.ParseAuthority(append(certificatePEM(ca), certificatePEM(w.authority)...), keyPEM(t, key), w.domain, w.now); err != nil {
			t.Errorf("%s: with a chain: %v", name, err)
		}
	}

	key := newKey(t, elliptic.P256())
	w := newWorld(t, key)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(key crypto.Signer, change func(*x509.Certificate)) []byte {
		foreign := newWorld(t, w.key)
		foreign.key, foreign.now = key, w.now
		return certificatePEM(foreign.foreign(t, change))
	}
	good, short, long := of(key, nil), newRSA(t, 1024), newKey(t, elliptic.P521())
	sec1 := valueOf[[]byte](t)(x509.MarshalECPrivateKey(key))
	if _, _, err := svid.ParseAuthority(good, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}), w.domain, w.now); err != nil {
		t.Errorf("a key in SEC 1: %v", err)
	}
	for what, c := range map[string]struct {
		certificate, key []byte
		says             string
	}{
		"no certificate":      {nil, keyPEM(t, key), "tls.crt is missing"},
		"no key":              {good, nil, "tls.key: it must have one private key in PEM"},
		"not PEM":             {[]byte("hello"), keyPEM(t, key), "tls.crt: "},
		"a key as tls.crt":    {keyPEM(t, key), keyPEM(t, key), "tls.crt: "},
		"two keys":            {good, append(keyPEM(t, key), keyPEM(t, key)...), "one private key"},
		"an encrypted key":    {good, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")}), "one private key"},
		"a damaged key":       {good, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret-bytes")}), "not a private key"},
		"another key":         {good, keyPEM(t, newKey(t, elliptic.P256())), "not the key of the certificate"},
		"expired":             {of(key, func(c *x509.Certificate) { c.NotAfter = w.now.Add(-time.Second) }), keyPEM(t, key), "has expired"},
		"not yet valid":       {of(key, func(c *x509.Certificate) { c.NotBefore = w.now.Add(time.Hour) }), keyPEM(t, key), "not valid before"},
		"no CA":               {of(key, func(c *x509.Certificate) { c.IsCA = false }), keyPEM(t, key), "not a CA"},
		"no keyCertSign":      {of(key, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), keyPEM(t, key), "keyCertSign"},
		"RSA of 1024 bits":    {of(short, nil), keyPEM(t, short), "tls.key: the RSA key has 1024 bits; use an RSA key of 2048"},
		"Ed25519":             {of(edwards, nil), keyPEM(t, edwards), "RSA of at least 2048 bits, P-256 or P-384"},
		"P-521":               {of(long, nil), keyPEM(t, long), "P-256 or P-384"},
		"no intermediate":     {of(key, func(c *x509.Certificate) { c.MaxPathLenZero = true }), keyPEM(t, key), "verifiers would refuse"},
		"another name space":  {of(key, func(c *x509.Certificate) { c.PermittedURIDomains = []string{"other.example"} }), keyPEM(t, key), "verifiers would refuse"},
		"server certificates": {of(key, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), keyPEM(t, key), "verifiers would refuse"},
		"another trust domain": {
			of(key, func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "spiffe", Host: "other.example"}} }), keyPEM(t, key), "not for spiffe://example.com",
		},
		"an ID with a path": {
			of(key, func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/a"}} }), keyPEM(t, key), "not for spiffe://example.com",
		},
		"two IDs": {
			of(key, func(c *x509.Certificate) { c.URIs = []*url.URL{w.domain.ID().URL(), w.domain.ID().URL()} }), keyPEM(t, key), "at most one URI",
		},
		"too much text": {[]byte(strings.Repeat("x", 1<<17)), keyPEM(t, key), "more than"},
	} {
		_, _, err := svid.ParseAuthority(c.certificate, c.key, w.domain, w.now)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", what, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "secret-bytes") {
			t.Errorf("%s: the error quotes the key", what)
		}
	}
}

func TestParseChain(t *testing.T) {
	w := newWorld(t, newKey(t, elliptic.P256()))
	one := svid.EncodeCertificate(w.authority)
	for text, want := range map[string]int{
		one: 1, one + "\n\n" + one: 2, strings.Repeat(one, 8): 8,
		"": 0, "hello": 0, one + "hello": 0, strings.Repeat(one, 9): 0,
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": 0,
	} {
		if got, err := svid.ParseChain(text); len(got) != want || (err == nil) != (want > 0) {
			t.Errorf("%.30q: %d certificates, %v; want %d", text, len(got), err, want)
		}
	}
}
