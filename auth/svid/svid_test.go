package svid_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

func domain(tb testing.TB) spiffeid.TrustDomain {
	tb.Helper()
	td, err := svid.ParseTrustDomain("example.com")
	must.Succeed(tb, err)
	return td
}

func object(tb testing.TB) spiffeid.ID {
	tb.Helper()
	id, err := svid.ID(domain(tb), "ocirepositories", "production", "my-app")
	must.Succeed(tb, err)
	return id
}

func newKey(tb testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	must.Succeed(tb, err)
	return key
}

func newRSA(tb testing.TB, bits int) *rsa.PrivateKey {
	tb.Helper()
	tb.Setenv("GODEBUG", "rsa1024min=0") // let crypto/rsa make short keys, which package svid must refuse
	key, err := rsa.GenerateKey(rand.Reader, bits)
	must.Succeed(tb, err)
	return key
}

func valueOf[T any](tb testing.TB) func(T, error) T {
	tb.Helper()
	return func(value T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

// TestTrustDomain checks that ParseTrustDomain refuses names that SPIFFE-ID §2.1 does not allow.
func TestTrustDomain(t *testing.T) {
	for name, good := range map[string]bool{
		"example.com": true, "prod_eu-1.example.com": true, strings.Repeat("a", 255): true,
		"": false, strings.Repeat("a", 256): false, "Example.com": false, "spiffe://example.com": false, "example.com/path": false,
		"example..com": false, ".example.com": false, "example.com.": false, "exämple.com": false, "example.com:443": false, "user@example.com": false,
		"example.com\n": false, "ex ample": false,
	} {
		if _, err := svid.ParseTrustDomain(name); (err == nil) != good {
			t.Errorf("%.40q: %v, want good: %v", name, err, good)
		}
	}
}

// TestID checks IDs against SPIFFE-ID §2.2 and §2.3, and the form of an object's ID.
func TestID(t *testing.T) {
	if got := object(t).String(); got != "spiffe://example.com/ocirepositories/production/my-app" {
		t.Error(got)
	}
	longest := valueOf[spiffeid.TrustDomain](t)(svid.ParseTrustDomain(strings.Repeat("a", 255)))
	if _, err := svid.ID(longest, "imagerepositories", strings.Repeat("n", 63), strings.Repeat("m", 253)); err != nil {
		t.Errorf("the longest names of Kubernetes do not fit: %v", err)
	}
	for what, c := range map[string][3]string{
		"longer than 2048 bytes":         {"ocirepositories", "a", strings.Repeat("m", 2048)},
		"a name that leaves its segment": {"ocirepositories", "a", "../b"},
		"a slash":                        {"ocirepositories", "a/b", "c"},
		"no namespace":                   {"ocirepositories", "", "c"},
		"a dot":                          {"ocirepositories", ".", "c"},
		"percent-encoding":               {"ocirepositories", "a%2fb", "c"},
	} {
		if id, err := svid.ID(domain(t), c[0], c[1], c[2]); err == nil {
			t.Errorf("%s is accepted: %s", what, id)
		}
	}
	if _, err := svid.ID(spiffeid.TrustDomain{}, "ocirepositories", "a", "b"); err == nil {
		t.Error("no trust domain is accepted")
	}
}

// TestJWT checks that JWT-SVIDs follow SPIFFE's standard JWT-SVID, and that go-spiffe accepts them.
func TestJWT(t *testing.T) {
	now := time.Now()
	for alg, key := range map[string]crypto.Signer{"RS256": newRSA(t, 2048), "ES256": newKey(t, elliptic.P256()), "ES384": newKey(t, elliptic.P384())} {
		claims := valueOf[svid.Claims](t)(svid.NewClaims("https://spiffe.example.com", object(t), []string{"registry.example.com"}, "one", now))
		token := valueOf[string](t)(svid.SignJWT(claims, "the-kid", key))
		bundle := jwtbundle.FromJWTAuthorities(domain(t), map[string]crypto.PublicKey{"the-kid": key.Public()})
		verified, err := jwtsvid.ParseAndValidate(token, bundle, []string{"registry.example.com"})
		if err != nil {
			t.Fatalf("%s: %v", alg, err)
		}
		if verified.ID != object(t) || !verified.Expiry.Equal(time.Unix(now.Add(time.Hour).Unix(), 0)) {
			t.Errorf("%s: %+v", alg, verified)
		}
		if _, err := jwtsvid.ParseAndValidate(token, bundle, []string{"another"}); err == nil {
			t.Errorf("%s: another audience is accepted", alg)
		}
		header, payload, _ := strings.Cut(token, ".")
		payload, _, _ = strings.Cut(payload, ".")
		head, body := text(t, header), text(t, payload)
		// The header has only alg, kid and typ. Source: JWT-SVID §2.
		if head != `{"alg":"`+alg+`","kid":"the-kid","typ":"JWT"}` {
			t.Errorf("%s: header %s", alg, head)
		}
		// The claim aud is a list, even with one value. Source: JWT-SVID §3.
		want := `{"iss":"https://spiffe.example.com","sub":"spiffe://example.com/ocirepositories/production/my-app","aud":["registry.example.com"],"exp":` +
			unix(now.Add(time.Hour)) + `,"nbf":` + unix(now.Add(-time.Minute)) + `,"iat":` + unix(now) + `,"jti":"one"}`
		if body != want {
			t.Errorf("%s: payload %s\nwant %s", alg, body, want)
		}
		expires, err := svid.CheckJWT(token, object(t), []string{"registry.example.com"}, now)
		if err != nil || expires.Unix() != now.Add(time.Hour).Unix() {
			t.Errorf("%s: CheckJWT: %v, %v", alg, expires, err)
		}
	}
}

func text(t *testing.T, part string) string {
	t.Helper()
	return string(valueOf[[]byte](t)(base64.RawURLEncoding.DecodeString(part)))
}

func unix(at time.Time) string { return big.NewInt(at.Unix()).String() }

// TestJWTRefusals checks that package svid refuses invalid audiences (JWT-SVID §3.2) and keys for
// algorithms that JWT-SVID §2.1 does not allow.
func TestJWTRefusals(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	for what, key := range map[string]crypto.Signer{"Ed25519": edwards, "RSA of 1024 bits": newRSA(t, 1024), "P-224": newKey(t, elliptic.P224()), "P-521": newKey(t, elliptic.P521())} {
		if _, err := svid.SignJWT(svid.Claims{}, "kid", key); err == nil {
			t.Errorf("%s signs", what)
		}
	}
	for what, audiences := range map[string][]string{
		"none": nil, "an empty one": {""}, "a space": {"a b"}, "a line end": {"a\n"}, "twice": {"a", "a"}, "not ASCII": {"ä"},
		"too many": strings.Split(strings.Repeat("a,", 16)+"b", ","), "too long": {strings.Repeat("a", 1025)},
	} {
		if _, err := svid.NewClaims("https://spiffe.example.com", object(t), audiences, "one", time.Now()); err == nil {
			t.Errorf("audiences: %s is accepted", what)
		}
	}
	if _, err := svid.NewClaims("https://spiffe.example.com", domain(t).ID(), []string{"a"}, "one", time.Now()); err == nil {
		t.Error("a JWT-SVID of the trust domain itself is made")
	}
	if _, err := svid.SignJWT(svid.Claims{}, "kid", broken{newKey(t, elliptic.P256())}); err == nil {
		t.Error("a signature that is none becomes a token")
	}
	if _, err := svid.SignJWT(func() {}, "kid", newKey(t, elliptic.P256())); err == nil {
		t.Error("claims that are not JSON become a token")
	}
}

// broken is a key whose signatures are not ECDSA signatures.
type broken struct{ *ecdsa.PrivateKey }

func (broken) Sign(_ io.Reader, _ []byte, _ crypto.SignerOpts) ([]byte, error) {
	return []byte{0x30, 0x02, 0x05, 0x00}, nil
}

func TestCheckJWT(t *testing.T) {
	now, key := time.Now(), newKey(t, elliptic.P256())
	good := func() svid.Claims {
		return valueOf[svid.Claims](t)(svid.NewClaims("https://spiffe.example.com", object(t), []string{"a"}, "one", now))
	}
	for what, change := range map[string]func(*svid.Claims){
		"another object":     func(c *svid.Claims) { c.Subject = "spiffe://example.com/ocirepositories/production/other" },
		"another audience":   func(c *svid.Claims) { c.Audiences = []string{"a", "b"} },
		"no audience":        func(c *svid.Claims) { c.Audiences = nil },
		"expired":            func(c *svid.Claims) { c.ExpiresAt = now.Unix() },
		"valid for too long": func(c *svid.Claims) { c.ExpiresAt = now.Add(2 * time.Hour).Unix() },
	} {
		claims := good()
		change(&claims)
		token := valueOf[string](t)(svid.SignJWT(claims, "kid", key))
		if _, err := svid.CheckJWT(token, object(t), []string{"a"}, now); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	token := valueOf[string](t)(svid.SignJWT(good(), "kid", key))
	rest := strings.SplitN(token, ".", 2)[1]
	for _, header := range []string{`{"alg":"none","kid":"kid","typ":"JWT"}`, `{"alg":"HS256","kid":"kid","typ":"JWT"}`, `{"alg":"ES256","kid":"","typ":"JWT"}`, `{"alg":"ES256","kid":"kid","typ":"at+jwt"}`, `[]`} {
		forged := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + rest
		if _, err := svid.CheckJWT(forged, object(t), []string{"a"}, now); err == nil {
			t.Errorf("the header %s is accepted", header)
		}
	}
	for _, no := range []string{"", "a.b", "a.b.c", token + ".x", "." + rest} {
		if _, err := svid.CheckJWT(no, object(t), []string{"a"}, now); err == nil {
			t.Errorf("%.20q is accepted", no)
		}
	}
}

// world has Lanyard's own authority, and an intermediate that a foreign authority signed. The
// foreign authority has the same key as Lanyard's own.
type world struct {
	domain       spiffeid.TrustDomain
	authority    *x509.Certificate
	key          crypto.Signer
	intermediate *x509.Certificate
	middle       crypto.Signer
	now          time.Time
}

func newWorld(tb testing.TB, key crypto.Signer) *world {
	tb.Helper()
	w := &world{domain: domain(tb), key: key, middle: newKey(tb, elliptic.P256()), now: time.Now()}
	w.authority = valueOf[*x509.Certificate](tb)(svid.NewAuthority(w.domain, key, 48*time.Hour, w.now))
	foreign := w.foreign(tb, nil)
	w.intermediate = valueOf[*x509.Certificate](tb)(svid.NewIntermediate(w.domain, foreign, key, w.middle.Public(), 24*time.Hour, w.now))
	return w
}

// foreign returns a CA as cert-manager makes it. If change is not nil, it may edit the CA's
// template.
func (w *world) foreign(tb testing.TB, change func(*x509.Certificate)) *x509.Certificate {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "our CA"}, NotBefore: w.now.Add(-time.Hour), NotAfter: w.now.Add(90 * 24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, w.key.Public(), w.key)
	must.Succeed(tb, err)
	return valueOf[*x509.Certificate](tb)(x509.ParseCertificate(der))
}

// TestCertificate checks that X.509-SVIDs follow SPIFFE's standard X509-SVID, and that go-spiffe
// accepts them.
func TestCertificate(t *testing.T) {
	for name, key := range map[string]crypto.Signer{"P-256": newKey(t, elliptic.P256()), "P-384": newKey(t, elliptic.P384()), "RSA": newRSA(t, 2048)} {
		w := newWorld(t, key)
		issuer := valueOf[*svid.Issuer](t)(svid.NewIssuer(w.domain, key, w.authority, nil))
		leafKey := newKey(t, elliptic.P256())
		made := valueOf[svid.Certificate](t)(issuer.Certificate(object(t), &leafKey.PublicKey, w.now))
		chain := valueOf[[]*x509.Certificate](t)(svid.ParseChain(made.Chain()))
		leaf := chain[0]
		id, _, err := x509svid.Verify(chain, x509bundle.FromX509Authorities(w.domain, []*x509.Certificate{w.authority}))
		if err != nil || id != object(t) {
			t.Fatalf("%s: %v, %v", name, id, err)
		}
		der := valueOf[[]byte](t)(x509.MarshalPKCS8PrivateKey(leafKey))
		if _, err := x509svid.Parse([]byte(made.Chain()), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
			t.Errorf("%s: go-spiffe does not load it: %v", name, err)
		}
		if err := svid.CheckChain(chain, object(t), &leafKey.PublicKey, w.now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		switch {
		case len(chain) != 1:
			t.Errorf("%s: the chain has %d certificates: the authority must not be there", name, len(chain))
		case len(leaf.URIs) != 1 || len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.EmailAddresses) > 0: // X509-SVID §2: exactly one URI SAN
			t.Errorf("%s: names %v", name, leaf.URIs)
		case leaf.Subject.String() != "" || !critical(leaf, 17): // RFC 5280 §4.1.2.6
			t.Errorf("%s: Subject %q, SAN critical: %v", name, leaf.Subject, critical(leaf, 17))
		case leaf.IsCA || !leaf.BasicConstraintsValid: // X509-SVID §4.1
			t.Errorf("%s: it is a CA", name)
		case leaf.KeyUsage != x509.KeyUsageDigitalSignature || !critical(leaf, 15): // X509-SVID §4.3
			t.Errorf("%s: key usage %b, critical: %v", name, leaf.KeyUsage, critical(leaf, 15))
		case len(leaf.ExtKeyUsage) != 2 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth || leaf.ExtKeyUsage[1] != x509.ExtKeyUsageClientAuth: // X509-SVID §4.4
			t.Errorf("%s: extended key usage %v", name, leaf.ExtKeyUsage)
		case leaf.NotBefore.Unix() != w.now.Add(-time.Minute).Unix() || leaf.NotAfter.Unix() != w.now.Add(time.Hour).Unix():
			t.Errorf("%s: valid from %v to %v", name, leaf.NotBefore, leaf.NotAfter)
		case leaf.SerialNumber.Sign() <= 0 || leaf.SerialNumber.BitLen() < 64 || leaf.SerialNumber.BitLen() > 159 || leaf.SerialNumber.Text(16) != made.Serial: // RFC 5280 §4.1.2.2
			t.Errorf("%s: serial %v, %s", name, leaf.SerialNumber, made.Serial)
		case string(leaf.AuthorityKeyId) != string(w.authority.SubjectKeyId) || leaf.Version != 3:
			t.Errorf("%s: authority key ID %x, version %d", name, leaf.AuthorityKeyId, leaf.Version)
		case !made.NotAfter.Equal(leaf.NotAfter):
			t.Errorf("%s: NotAfter %v", name, made.NotAfter)
		}
		again := valueOf[svid.Certificate](t)(issuer.Certificate(object(t), &leafKey.PublicKey, w.now))
		if again.Serial == made.Serial {
			t.Errorf("%s: two certificates have the same serial", name)
		}
	}
}

func critical(c *x509.Certificate, id int) bool {
	for _, e := range c.Extensions {
		if e.Id.Equal([]int{2, 5, 29, id}) {
			return e.Critical
		}
	}
	return false
}

// TestCertificateLikeLibrary compares the encoding of an X.509-SVID with that of crypto/x509, byte
// for byte.
func TestCertificateLikeLibrary(t *testing.T) {
	w := newWorld(t, newKey(t, elliptic.P256()))
	leafKey := newKey(t, elliptic.P256())
	for what, now := range map[string]time.Time{"UTCTime": w.now, "GeneralizedTime": time.Date(2051, 2, 3, 4, 5, 6, 7, time.UTC)} {
		w.now = now
		authority := valueOf[*x509.Certificate](t)(svid.NewAuthority(w.domain, w.key, 48*time.Hour, now))
		issuer := valueOf[*svid.Issuer](t)(svid.NewIssuer(w.domain, w.key, authority, nil))
		made := valueOf[svid.Certificate](t)(issuer.Certificate(object(t), &leafKey.PublicKey, now))
		ours := valueOf[*x509.Certificate](t)(x509.ParseCertificate(made.DER))
		template := &x509.Certificate{
			SerialNumber: ours.SerialNumber, NotBefore: ours.NotBefore, NotAfter: ours.NotAfter, URIs: []*url.URL{object(t).URL()},
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der := valueOf[[]byte](t)(x509.CreateCertificate(rand.Reader, template, authority, &leafKey.PublicKey, w.key))
		theirs := valueOf[*x509.Certificate](t)(x509.ParseCertificate(der))
		if string(ours.RawTBSCertificate) != string(theirs.RawTBSCertificate) {
			t.Errorf("%s:\n%x\nwant\n%x", what, ours.RawTBSCertificate, theirs.RawTBSCertificate)
		}
	}
}

// TestIntermediate checks that go-spiffe and CheckChain accept a chain that leads to an imported
// authority.
func TestIntermediate(t *testing.T) {
	w := newWorld(t, newRSA(t, 2048))
	foreign := w.foreign(t, nil)
	intermediate := valueOf[*x509.Certificate](t)(svid.NewIntermediate(w.domain, foreign, w.key, w.middle.Public(), 24*time.Hour, w.now))
	issuer := valueOf[*svid.Issuer](t)(svid.NewIssuer(w.domain, w.middle, foreign, intermediate))
	leafKey := newKey(t, elliptic.P256())
	made := valueOf[svid.Certificate](t)(issuer.Certificate(object(t), &leafKey.PublicKey, w.now))
	chain := valueOf[[]*x509.Certificate](t)(svid.ParseChain(made.Chain()))
	if len(chain) != 2 || !chain[1].Equal(intermediate) {
		t.Fatalf("the chain has %d certificates", len(chain))
	}
	if _, _, err := x509svid.Verify(chain, x509bundle.FromX509Authorities(w.domain, []*x509.Certificate{foreign})); err != nil {
		t.Error(err)
	}
	if err := svid.CheckChain(chain, object(t), &leafKey.PublicKey, w.now); err != nil {
		t.Error(err)
	}
	// The SPIFFE ID of a CA has no path (X509-SVID §3.2), and a CA may sign certificates (§4.2).
	if len(intermediate.URIs) != 1 || intermediate.URIs[0].String() != "spiffe://example.com" || intermediate.KeyUsage&x509.KeyUsageCertSign == 0 ||
		!intermediate.MaxPathLenZero || !critical(intermediate, 19) || !critical(intermediate, 15) {
		t.Errorf("intermediate: %+v", intermediate)
	}
	if issuer.NotAfter() != intermediate.NotAfter {
		t.Errorf("the issuer ends at %v", issuer.NotAfter())
	}
	if _, err := svid.NewIssuer(w.domain, w.middle, w.authority, intermediate); err == nil {
		t.Error("an intermediate of another authority is accepted")
	}
}

// TestNeverOutlivesAuthority checks that an SVID never expires after the authority or the
// intermediate that signed it.
func TestNeverOutlivesAuthority(t *testing.T) {
	w := newWorld(t, newKey(t, elliptic.P256()))
	leafKey := newKey(t, elliptic.P256())
	foreign := w.foreign(t, func(c *x509.Certificate) { c.NotAfter = w.now.Add(time.Hour) })
	capped := valueOf[*x509.Certificate](t)(svid.NewIntermediate(w.domain, foreign, w.key, w.middle.Public(), 24*time.Hour, w.now))
	if capped.NotAfter.After(foreign.NotAfter) {
		t.Error("the intermediate outlives its authority")
	}
	for what, issuer := range map[string]*svid.Issuer{
		"authority":    valueOf[*svid.Issuer](t)(svid.NewIssuer(w.domain, w.key, w.authority, nil)),
		"intermediate": valueOf[*svid.Issuer](t)(svid.NewIssuer(w.domain, w.middle, foreign, capped)),
	} {
		made := valueOf[svid.Certificate](t)(issuer.Certificate(object(t), &leafKey.PublicKey, issuer.NotAfter().Add(-time.Minute)))
		if !made.NotAfter.Equal(issuer.NotAfter()) {
			t.Errorf("%s: the SVID ends at %v, and the issuer at %v", what, made.NotAfter, issuer.NotAfter())
		}
		if _, err := issuer.Certificate(object(t), &leafKey.PublicKey, issuer.NotAfter()); !errors.Is(err, svid.ErrExpired) {
			t.Errorf("%s: after the end: %v", what, err)
		}
	}
}

func TestCertificateRefusals(t *testing.T) {
	w := newWorld(t, newKey(t, elliptic.P256()))
	issuer := valueOf[*svid.Issuer](t)(svid.NewIssuer(w.domain, w.key, w.authority, nil))
	leafKey := newKey(t, elliptic.P256())
	other := valueOf[spiffeid.ID](t)(spiffeid.FromString("spiffe://other.example/ocirepositories/production/my-app"))
	for what, id := range map[string]spiffeid.ID{"another trust domain": other, "the trust domain itself": w.domain.ID(), "no ID": {}} {
		if _, err := issuer.Certificate(id, &leafKey.PublicKey, w.now); err == nil {
			t.Errorf("%s gets a certificate", what)
		}
	}
	if _, err := issuer.Certificate(object(t), &newKey(t, elliptic.P384()).PublicKey, w.now); err == nil {
		t.Error("a key on P-384 gets a certificate")
	}
	if _, err := svid.NewIssuer(w.domain, w.middle, w.authority, nil); err == nil {
		t.Error("another key signs for the authority")
	}
	if _, err := svid.NewAuthority(w.domain, newRSA(t, 1024), time.Hour, w.now); err == nil {
		t.Error("a short RSA key becomes an authority")
	}
}

func TestParsePublicKey(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	key := newKey(t, elliptic.P256())
	der := valueOf[[]byte](t)(x509.MarshalPKIXPublicKey(&key.PublicKey))
	if got, err := svid.ParsePublicKey(der); err != nil || !got.Equal(&key.PublicKey) {
		t.Errorf("%v, %v", got, err)
	}
	offCurve := append([]byte{}, der...)
	offCurve[len(offCurve)-1] ^= 1
	for what, der := range map[string][]byte{
		"empty": nil, "RSA": valueOf[[]byte](t)(x509.MarshalPKIXPublicKey(newRSA(t, 2048).Public())), "Ed25519": valueOf[[]byte](t)(x509.MarshalPKIXPublicKey(edwards.Public())),
		"P-384": valueOf[[]byte](t)(x509.MarshalPKIXPublicKey(newKey(t, elliptic.P384()).Public())), "a point off the curve": offCurve, "a tail": append(append([]byte{}, der...), 0),
		"too long": make([]byte, 1<<20),
	} {
		if _, err := svid.ParsePublicKey(der); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

func TestCheckChain(t *testing.T) {
	w := newWorld(t, newKey(t, elliptic.P256()))
	leafKey := newKey(t, elliptic.P256())
	leaf := func(change func(*x509.Certificate)) *x509.Certificate {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(7), NotBefore: w.now.Add(-time.Minute), NotAfter: w.now.Add(time.Hour), URIs: []*url.URL{object(t).URL()},
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		}
		if change != nil {
			change(template)
		}
		der := valueOf[[]byte](t)(x509.CreateCertificate(rand.Reader, template, w.intermediate, &leafKey.PublicKey, w.middle))
		return valueOf[*x509.Certificate](t)(x509.ParseCertificate(der))
	}
	check := func(chain ...*x509.Certificate) error {
		return svid.CheckChain(chain, object(t), &leafKey.PublicKey, w.now)
	}
	must.Succeed(t, check(leaf(nil), w.intermediate))
	for what, chain := range map[string][]*x509.Certificate{
		"nothing":    nil,
		"two URIs":   {leaf(func(c *x509.Certificate) { c.URIs = append(c.URIs, object(t).URL()) })},
		"a DNS name": {leaf(func(c *x509.Certificate) { c.DNSNames = []string{"example.com"} })},
		"another object": {leaf(func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/other"}}
		})},
		"a CA":                {leaf(func(c *x509.Certificate) { c.IsCA = true })},
		"keyCertSign":         {leaf(func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign })},
		"no digitalSignature": {leaf(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement })},
		"expired":             {leaf(func(c *x509.Certificate) { c.NotAfter = w.now })},
		"valid for too long":  {leaf(func(c *x509.Certificate) { c.NotAfter = w.now.Add(3 * time.Hour) })},
		"not yet valid":       {leaf(func(c *x509.Certificate) { c.NotBefore = w.now.Add(time.Minute) })},
		"a foreign signer":    {leaf(nil), w.authority},
		"a leaf as signer":    {leaf(nil), leaf(nil)},
	} {
		if err := check(chain...); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if err := svid.CheckChain([]*x509.Certificate{leaf(nil)}, object(t), &newKey(t, elliptic.P256()).PublicKey, w.now); err == nil {
		t.Error("another key is accepted")
	}
}
