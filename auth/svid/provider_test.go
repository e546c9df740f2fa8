package svid_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/auth/providertest"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

const registry = "registry.example.com"

// ring is a trust domain with one authority. The same key signs JWTs and certificates.
type ring struct {
	t      *testing.T
	key    crypto.Signer
	issuer *svid.Issuer

	mu      sync.Mutex
	signers svid.Signers
	err     error
}

func newRing(t *testing.T) *ring {
	t.Helper()
	domain, err := svid.ParseTrustDomain("example.com")
	rig.Must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rig.Must(t, err)
	authority, err := svid.NewAuthority(domain, key, 24*time.Hour, time.Now())
	rig.Must(t, err)
	issuer, err := svid.NewIssuer(domain, key, authority, nil)
	rig.Must(t, err)
	return &ring{t: t, key: key, issuer: issuer, signers: svid.Signers{
		TrustDomain: domain, Issuer: "https://spiffe.example.com", Key: "kid-1", Authority: svid.AuthorityID(authority),
	}}
}

// Signers implements [svid.Ring].
func (r *ring) Signers() (svid.Signers, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signers, r.err
}

func (r *ring) change(how func(*svid.Signers)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(&r.signers)
}

// sign makes an SVID of the account in the requested form.
func (r *ring) sign(account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	signers, err := r.Signers()
	if err != nil {
		return nil, err
	}
	id, err := svid.IDOf(signers.TrustDomain, account.Subject)
	if err != nil {
		return nil, err
	}
	if request.Form == auth.FormCertificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		made, err := r.issuer.Certificate(id, &key.PublicKey, time.Now())
		return auth.NewCertificate([][]byte{made.DER}, key, made.NotAfter), err
	}
	claims, err := svid.NewClaims(signers.Issuer, id, request.Audiences, rand.Text(), time.Now())
	if err != nil {
		return nil, err
	}
	token, err := svid.SignJWT(claims, signers.Key, r.key)
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: time.Unix(claims.ExpiresAt, 0)}, err
}

// holder returns the SPIFFE ID in an SVID.
func holder(token auth.Token) (string, error) {
	if certificate, ok := token.(*auth.Certificate); ok {
		leaf, err := x509.ParseCertificate(certificate.TLS().Certificate[0])
		if err != nil || len(leaf.URIs) != 1 {
			return "", errors.New("no X.509-SVID")
		}
		return leaf.URIs[0].String(), nil
	}
	jwt := token.(*auth.JWT).Token.Reveal()
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		id := spiffeid.RequireFromString("spiffe://example.com/ocirepositories/" + tenant + "/app")
		if _, err := svid.CheckJWT(jwt, id, []string{registry}, time.Now()); err == nil {
			return id.String(), nil
		}
	}
	return "", errors.New("no JWT-SVID for " + registry)
}

func provider(t *testing.T, form svid.Type, ring svid.Ring) *svid.Provider {
	t.Helper()
	p, err := svid.NewProvider(form, ring)
	rig.Must(t, err)
	return p
}

func TestConformance(t *testing.T) {
	for _, form := range []svid.Type{svid.JWT, svid.X509} {
		t.Run(string(form), func(t *testing.T) {
			providertest.Run(t, func(t *testing.T) *providertest.Harness {
				t.Helper()
				return harness(t, form)
			})
		})
	}
}

func harness(t *testing.T, form svid.Type) *providertest.Harness {
	t.Helper()
	r := newRing(t)
	maker := &rig.Maker{Make: r.sign}
	account := func(tenant string) auth.Account {
		subject, err := auth.Object("OCIRepository", tenant, "app")
		rig.Must(t, err)
		return auth.Account{Subject: subject, UID: "uid-" + tenant}
	}
	h := &providertest.Harness{
		Provider: provider(t, form, r), A: account("tenant-a"), B: account("tenant-b"),
		WithIdentity: func(account auth.Account, _ string) auth.Account { return account },
		Prove:        maker.Prove, Cloud: maker, Credential: true, Direct: true, IdentityOptional: true,
		NewCache: func(*testing.T) providertest.Cache { return cache.New(cache.Options{MaxSize: 100}) },
		Secrets: func(token auth.Token) []string {
			if jwt, ok := token.(*auth.JWT); ok {
				return []string{jwt.Token.Reveal()}
			}
			// The token is a certificate. Package providertest reads its private key itself.
			return nil
		},
		Whose: func(_ context.Context, token auth.Token) (string, error) { return holder(token) },
		Unsupported: map[string]auth.Option{
			"STS region": auth.WithSTSRegion("eu-west-1"), "STS endpoint": auth.WithSTSEndpoint("https://sts.eu-west-1.amazonaws.com"),
			"proxy": auth.WithProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:3128"}), "scopes": auth.WithScopes("everything"),
			"context object": auth.WithContextObject(auth.ObjectReference{Name: "app"}),
		},
	}
	if form == svid.JWT {
		h.Options = []auth.Option{auth.WithAudiences(registry)}
		h.Variations = map[string][]auth.Option{"other receivers": {auth.WithAudiences("elsewhere.example.com")}}
	} else {
		h.Unsupported["audiences"] = auth.WithAudiences(registry)
	}
	return h
}

func key(t *testing.T, form svid.Type, r *ring, subject auth.Subject) (auth.Key, error) {
	t.Helper()
	accounts := rig.Accounts{All: []auth.Account{{Subject: subject, UID: "uid"}}}
	options := []auth.Option{auth.WithSubject(subject, accounts)}
	if form == svid.JWT {
		options = append(options, auth.WithAudiences(registry))
	}
	return auth.Resolve(t.Context(), provider(t, form, r), options...)
}

// TestKeys checks that another signer, issuer or trust domain changes the [auth.Key] of an SVID. A
// change that concerns only JWT-SVIDs must not change the auth.Key of an X.509-SVID, and vice
// versa.
func TestKeys(t *testing.T) {
	subject, err := auth.Object("ImageRepository", "tenant-a", "app")
	rig.Must(t, err)
	other, err := svid.ParseTrustDomain("other.example.com")
	rig.Must(t, err)
	for name, test := range map[string]struct {
		change func(*svid.Signers)
		// jwt is true if the auth.Key of a JWT-SVID must differ after the change, and false if it
		// must stay the same. x509 says the same about the auth.Key of an X.509-SVID.
		jwt, x509 bool
	}{
		"key":          {func(s *svid.Signers) { s.Key = "kid-2" }, true, false},
		"issuer":       {func(s *svid.Signers) { s.Issuer = "https://other.example.com" }, true, false},
		"authority":    {func(s *svid.Signers) { s.Authority = "0b" }, false, true},
		"trust domain": {func(s *svid.Signers) { s.TrustDomain = other }, true, true},
	} {
		for form, want := range map[svid.Type]bool{svid.JWT: test.jwt, svid.X509: test.x509} {
			r := newRing(t)
			before, err := key(t, form, r, subject)
			rig.Must(t, err)
			if before.Identity != "spiffe://example.com/imagerepositories/tenant-a/app" {
				t.Errorf("identity %s", before.Identity)
			}
			r.change(test.change)
			after, err := key(t, form, r, subject)
			rig.Must(t, err)
			if (before != after) != want {
				t.Errorf("another %s, %s: %s and %s", name, form, before, after)
			}
		}
	}
}

// TestNobodySigns checks that the error says why there is no signer of SVIDs.
func TestNobodySigns(t *testing.T) {
	object, err := auth.Object("OCIRepository", "tenant-a", "app")
	rig.Must(t, err)
	bucket, err := auth.Object("Bucket", "tenant-a", "app")
	rig.Must(t, err)
	long, err := auth.Object("OCIRepository", "tenant-a", strings.Repeat("a", 253))
	rig.Must(t, err)
	account, err := auth.ServiceAccount("tenant-a", "app")
	rig.Must(t, err)
	for name, test := range map[string]struct {
		form    svid.Type
		subject auth.Subject
		change  func(*svid.Signers)
		code    auth.Code
		says    string
	}{
		"no issuer":                    {svid.JWT, object, func(s *svid.Signers) { s.Issuer = "" }, auth.CodeNotGranted, "spiffe.issuer of the Helm chart (--spiffe-issuer "},
		"no key yet":                   {svid.JWT, object, func(s *svid.Signers) { s.Key = "" }, auth.CodeUnavailable, "no active key yet"},
		"no authority yet":             {svid.X509, object, func(s *svid.Signers) { s.Authority = "" }, auth.CodeUnavailable, "no active authority yet"},
		"no issuer, but a certificate": {svid.X509, object, func(s *svid.Signers) { s.Issuer, s.Key = "", "" }, "", ""},
		"a kind without SVIDs":         {svid.X509, bucket, func(*svid.Signers) {}, auth.CodeSubjectInvalid, "Bucket"},
		"a ServiceAccount":             {svid.JWT, account, func(*svid.Signers) {}, auth.CodeSubjectInvalid, "serviceaccount"},
		"a long name":                  {svid.JWT, long, func(*svid.Signers) {}, "", ""},
	} {
		r := newRing(t)
		r.change(test.change)
		_, err := key(t, test.form, r, test.subject)
		if auth.CodeOf(err) != test.code || err != nil && !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}

	r := newRing(t)
	r.err = &auth.Error{Stage: auth.StageTokenRequest, Code: auth.CodeNotGranted, Err: errors.New("no trust domain")}
	if _, err := key(t, svid.X509, r, object); auth.CodeOf(err) != auth.CodeNotGranted {
		t.Errorf("no ring: %v", err)
	}
	for name, make := range map[string]func() (*svid.Provider, error){
		"no type": func() (*svid.Provider, error) { return svid.NewProvider("", newRing(t)) },
		"no ring": func() (*svid.Provider, error) { return svid.NewProvider(svid.JWT, nil) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
