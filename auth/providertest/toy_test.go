package providertest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/providertest"
)

// TestEveryFormOfProof runs the suite with a toy provider for each form of proof, and with one that
// returns a JWT with two audiences as the credential.
func TestEveryFormOfProof(t *testing.T) {
	for name, harness := range map[string]func(*testing.T) *providertest.Harness{
		"JWT": exchanging(auth.FormJWT), "certificate": exchanging(auth.FormCertificate), "chain": exchanging(auth.FormToken),
		"credential": passingOn,
	} {
		t.Run(name, func(t *testing.T) { providertest.Run(t, harness) })
	}
}

const identityAttribute = "toy/identity"

// toy is a cloud. For each identity, it trusts one subject. It is also the authority that makes the
// subjects' proofs.
type toy struct {
	key     ed25519.PrivateKey // of the authority, whose certificate is ca
	ca      *x509.Certificate
	foreign ed25519.PrivateKey // of an unknown authority
	leaf    *ecdsa.PrivateKey
	tokens  *cache.Cache // stores the tokens of source identities

	mu        sync.Mutex
	trust     map[string]auth.Subject // the trusted subject of each identity
	sessions  map[string]string       // the principal of each session, by its secret
	exchanges int
	trouble   providertest.Trouble
}

func newToy(t *testing.T) *toy {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	_, foreign, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	ca, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return &toy{
		key: key, ca: ca, foreign: foreign, leaf: leaf, tokens: cache.New(cache.Options{MaxSize: 100}),
		trust: map[string]auth.Subject{}, sessions: map[string]string{},
	}
}

func (c *toy) account(t *testing.T, namespace string) auth.Account {
	t.Helper()
	subject, err := auth.Object("Widget", namespace, "w")
	must.Succeed(t, err)
	identity := "identity-of-" + namespace
	c.trust[identity] = subject
	return withIdentity(auth.Account{Subject: subject, UID: "uid-" + namespace}, identity)
}

func withIdentity(account auth.Account, identity string) auth.Account {
	account.Attributes = map[string]string{identityAttribute: identity}
	if identity == "" {
		account.Attributes = nil
	}
	return account
}

// harness returns the parts that the harnesses of all toy providers share.
func (c *toy) harness(t *testing.T) *providertest.Harness {
	t.Helper()
	return &providertest.Harness{
		A: c.account(t, "tenant-a"), B: c.account(t, "tenant-b"), WithIdentity: withIdentity,
		MalformedIdentity: "no identity",
		NewCache:          func(*testing.T) providertest.Cache { return cache.New(cache.Options{MaxSize: 100}) },
		Cloud:             c,
		Unsupported:       map[string]auth.Option{"scopes": auth.WithScopes("everything")},
	}
}

// exchanging returns a function that makes the harness of a provider which exchanges proofs of this
// form.
func exchanging(form auth.Form) func(*testing.T) *providertest.Harness {
	return func(t *testing.T) *providertest.Harness {
		t.Helper()
		c := newToy(t)
		h := c.harness(t)
		h.Provider = &exchanger{cloud: c, form: form}
		h.Prove = c.prove
		h.Secrets = func(token auth.Token) []string { return []string{token.(*session).secret.Reveal()} }
		h.Whose = func(_ context.Context, token auth.Token) (string, error) { return c.principal(token.(*session)), nil }
		return h
	}
}

// passingOn makes the harness of a provider whose credential is the proof itself.
func passingOn(t *testing.T) *providertest.Harness {
	t.Helper()
	c := newToy(t)
	h := c.harness(t)
	h.Provider = passer{c}
	h.Options = []auth.Option{auth.WithAudiences("registry.example", "mirror.example")}
	h.Credential, h.Direct = true, true
	h.Prove = c.prove
	h.Secrets = func(token auth.Token) []string { return []string{token.(*auth.JWT).Token.Reveal()} }
	h.Principal = func(account auth.Account) (string, error) { return account.Subject.String(), nil }
	h.Whose = func(_ context.Context, token auth.Token) (string, error) {
		return c.judge(token.(*auth.JWT), "mirror.example")
	}
	h.Variations = map[string][]auth.Option{"other receivers": {auth.WithAudiences("elsewhere.example")}}
	return h
}

// Exchanges implements [providertest.Cloud].
func (c *toy) Exchanges() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exchanges
}

// Trouble implements [providertest.Cloud].
func (c *toy) Trouble(_ *testing.T, trouble providertest.Trouble) func() {
	set := func(trouble providertest.Trouble) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.trouble = trouble
	}
	set(trouble)
	return func() { set("") }
}

// Revoke implements [providertest.Cloud].
func (c *toy) Revoke(_ *testing.T, account auth.Account) func() {
	identity := account.Attributes[identityAttribute]
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.trust, identity)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.trust[identity] = account.Subject
	}
}

// begin counts a call, and delays it or returns an error according to the current trouble.
func (c *toy) begin(ctx context.Context) error {
	c.mu.Lock()
	c.exchanges++
	trouble := c.trouble
	c.mu.Unlock()
	failed := &auth.Error{Stage: auth.StageExchange, Fix: "wait", Err: errors.New("the toy is " + string(trouble))}
	switch trouble {
	case providertest.Slow:
		select {
		case <-time.After(providertest.SlowAnswer):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case providertest.Throttled:
		failed.Code = auth.CodeThrottled
	case providertest.Failing:
		failed.Code = auth.CodeUnavailable
	case providertest.Broken:
		failed.Code = auth.CodeResponseInvalid
	case providertest.Unreachable:
		failed.Code = auth.CodeUnreachable
	default:
		return nil
	}
	return failed
}

// statement is the payload of the toy's JWTs.
type statement struct {
	Issuer, Subject string
	Audiences       []string
	Expires         time.Time
	ID              string // makes each JWT unique
}

// prove makes a proof of the account in the requested form, with this defect.
func (c *toy) prove(ctx context.Context, account auth.Account, request auth.ProofRequest, defect providertest.Defect) (auth.Proof, error) {
	signer, expires := c.key, time.Now().Add(request.Lifetime).UTC()
	switch defect {
	case providertest.Forged:
		signer = c.foreign
	case providertest.Expired:
		expires = time.Now().Add(-time.Hour).UTC()
	case providertest.WrongIssuer, providertest.None:
	}
	switch request.Form {
	case auth.FormJWT:
		payload, err := json.Marshal(statement{"toy:" + string(defect), account.Subject.String(), request.Audiences, expires, rand.Text()})
		if err != nil {
			return nil, err
		}
		token := base64.RawURLEncoding.EncodeToString(payload) + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(signer, payload))
		return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: expires}, nil
	case auth.FormCertificate:
		return c.certificate(account, signer, expires, defect)
	case auth.FormToken:
		return c.source(ctx, account, defect)
	default:
		return nil, fmt.Errorf("form %q", request.Form)
	}
}

func (c *toy) certificate(account auth.Account, signer ed25519.PrivateKey, expires time.Time, defect providertest.Defect) (auth.Proof, error) {
	uri := &url.URL{Scheme: "toy", Opaque: account.Subject.String()}
	if defect == providertest.WrongIssuer {
		uri.Scheme = "other"
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), URIs: []*url.URL{uri}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	// CreateCertificate refuses a signer whose key differs from the parent's key. So the parent
	// gets the signer's key.
	parent := *c.ca
	parent.PublicKey = signer.Public()
	der, err := x509.CreateCertificate(rand.Reader, template, &parent, c.leaf.Public(), signer)
	if err != nil {
		return nil, err
	}
	return auth.NewCertificate([][]byte{der}, c.leaf, expires), nil
}

// source returns the proof of an account that borrows another identity, the source identity. The
// two identities form a chain: the proof is a token of the source identity. source gets this token
// from GetToken, with the cache c.tokens.
func (c *toy) source(ctx context.Context, account auth.Account, defect providertest.Defect) (auth.Proof, error) {
	if defect != providertest.None {
		return &session{auth.NewSecret("a session that nobody gave: " + string(defect)), time.Now().Add(time.Hour)}, nil
	}
	link, err := auth.ClusterIdentity("SourceIdentity", account.Subject.Namespace())
	if err != nil {
		return nil, err
	}
	// The source identity is lent. Its token must count towards the cache limits of the tenant that
	// borrows the identity.
	accounts := auth.AccountsByKind{link.Kind(): links{c, account.Subject}}
	return auth.GetToken(ctx, &exchanger{cloud: c, form: auth.FormJWT, uncounted: true},
		auth.WithSubject(link, accounts), auth.WithTenant(account.Subject.Namespace()),
		auth.WithCache(c.tokens, auth.InvolvedObject{}))
}

// links is an [auth.Accounts] for a chain of two identities; see toy.source. Its only account is
// that of the source identity. The field consumer is the subject that borrows this identity.
type links struct {
	toy      *toy
	consumer auth.Subject
}

func (l links) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	return withIdentity(auth.Account{Subject: subject, UID: "uid-of-source"}, "source-of-"+l.consumer.Namespace()), nil
}

func (links) Subscribe(func(auth.Subject)) {}

func (l links) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return l.Lookup(ctx, subject)
}

func (l links) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	l.toy.mu.Lock()
	defer l.toy.mu.Unlock()
	l.toy.trust[account.Attributes[identityAttribute]] = account.Subject
	payload, err := json.Marshal(statement{"toy:", account.Subject.String(), request.Audiences, time.Now().Add(request.Lifetime), rand.Text()})
	if err != nil {
		return nil, err
	}
	token := base64.RawURLEncoding.EncodeToString(payload) + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(l.toy.key, payload))
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: time.Now().Add(request.Lifetime)}, nil
}

// judge verifies that a JWT is valid for the receiver, and returns the subject of the JWT.
func (c *toy) judge(jwt *auth.JWT, receiver string) (string, error) {
	encoded, signature, _ := strings.Cut(jwt.Token.Reveal(), ".")
	payload, _ := base64.RawURLEncoding.DecodeString(encoded)
	signed, _ := base64.RawURLEncoding.DecodeString(signature)
	var said statement
	if !ed25519.Verify(c.key.Public().(ed25519.PublicKey), payload, signed) || json.Unmarshal(payload, &said) != nil {
		return "", errors.New("the signature is not the authority's")
	}
	if said.Issuer != "toy:" || !slices.Contains(said.Audiences, receiver) || !time.Now().Before(said.Expires) {
		return "", errors.New("the claims are not for " + receiver)
	}
	return said.Subject, nil
}

// session is the token of the toy cloud.
type session struct {
	secret auth.Secret
	ends   time.Time
}

func (s *session) GetDuration() time.Duration { return time.Until(s.ends) }

// exchanger exchanges proofs of one form for sessions.
type exchanger struct {
	cloud     *toy
	form      auth.Form
	uncounted bool // true for a source identity; toy.Exchanges does not count its exchanges
}

func (*exchanger) GetName() string { return "toy" }

func (*exchanger) GetTarget(*auth.Options) (auth.Target, error) { return auth.Target{}, nil }

func (*exchanger) GetIdentity(account auth.Account) (string, error) {
	identity, ok := account.Attributes[identityAttribute]
	code := auth.CodeIdentityInvalid
	switch {
	case !ok:
		code = auth.CodeIdentityMissing
	case !strings.Contains(identity, " "):
		return identity, nil
	}
	return "", &auth.Error{Stage: auth.StageIdentity, Code: code, Fix: "set " + identityAttribute, Err: errors.New("no identity")}
}

func (p *exchanger) GetProofRequest(context.Context, *auth.Request) (auth.ProofRequest, error) {
	asked := auth.ProofRequest{Form: p.form}
	if p.form == auth.FormJWT {
		asked.Audiences = []string{"toy.example"}
	}
	return asked, nil
}

func (p *exchanger) NewToken(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	who, err := p.subject(proof)
	if err != nil {
		return nil, err
	}
	c := p.cloud
	if !p.uncounted {
		if err := c.begin(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	trusted := c.trust[request.Key.Identity].String()
	if p.form == auth.FormToken {
		trusted = "source-of-" + c.trust[request.Key.Identity].Namespace()
	}
	if who != trusted {
		return nil, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeTrustRefused, Fix: "trust " + request.Key.Subject.String(), Err: errors.New("not trusted"),
		}
	}
	secret := rand.Text()
	c.sessions[secret] = request.Key.Identity
	return &session{auth.NewSecret(secret), time.Now().Add(time.Hour)}, nil
}

// subject verifies a proof and returns its subject. A proof of another form than p.form is an
// error. An invalid proof has an empty subject.
func (p *exchanger) subject(proof auth.Proof) (string, error) {
	switch p.form {
	case auth.FormJWT:
		jwt, err := auth.JWTOf(proof)
		if err != nil {
			return "", err
		}
		who, _ := p.cloud.judge(jwt, "toy.example")
		return who, nil
	case auth.FormCertificate:
		certificate, err := auth.CertificateOf(proof)
		if err != nil {
			return "", err
		}
		return p.cloud.holder(certificate), nil
	default:
		source, ok := proof.(*session)
		if !ok {
			return "", &auth.Error{Stage: auth.StageTokenRequest, Code: auth.CodeProofInvalid, Fix: "pass a session", Err: errors.New("no session")}
		}
		return p.cloud.principal(source), nil
	}
}

// principal returns the identity that the session is for, or an empty string.
func (c *toy) principal(s *session) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[s.secret.Reveal()]
}

// holder returns the subject in a certificate, or an empty string if the authority has not signed
// the certificate.
func (c *toy) holder(certificate *auth.Certificate) string {
	leaf, err := x509.ParseCertificate(certificate.TLS().Certificate[0])
	if err != nil {
		return ""
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.ca)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return ""
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != "toy" {
		return ""
	}
	return leaf.URIs[0].Opaque
}

// passer is a provider whose token is the proof itself.
type passer struct{ cloud *toy }

func (passer) GetName() string { return "passer" }

func (passer) GetTarget(options *auth.Options) (auth.Target, error) {
	return auth.Target{Audiences: options.Audiences}, nil
}

func (passer) GetIdentity(auth.Account) (string, error) { return "", nil }

func (passer) GetProofRequest(_ context.Context, request *auth.Request) (auth.ProofRequest, error) {
	return auth.ProofRequest{Form: auth.FormJWT, Audiences: request.Key.Audiences.Values(), Lifetime: time.Hour}, nil
}

func (p passer) NewToken(ctx context.Context, proof auth.Proof, _ *auth.Request) (auth.Token, error) {
	return proof, p.cloud.begin(ctx)
}
