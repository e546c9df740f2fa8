package providertest

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// Harness has a provider, a local cloud and two tenants. All fields are required unless their
// comment says otherwise.
type Harness struct {
	// Provider is the provider under test.
	Provider auth.Provider
	// Options are options of every call, such as a region. Optional.
	Options []auth.Option
	// A and B are subjects of two tenants. The cloud gives each only its own identity.
	A, B auth.Account
	// WithIdentity returns the account with another identity. If identity is empty, it returns the
	// account without an identity.
	WithIdentity func(account auth.Account, identity string) auth.Account
	// MalformedIdentity is a text that this provider refuses as an identity.
	MalformedIdentity string
	// Prove makes a proof of the account, in the form that the provider requests and with the given
	// defect. [Signed] makes such a function from one that signs JWTs.
	Prove func(ctx context.Context, account auth.Account, request auth.ProofRequest, defect Defect) (auth.Proof, error)
	// NewCache makes an empty cache with room for a hundred tokens.
	NewCache func(t *testing.T) Cache
	// Cloud is the local cloud.
	Cloud Cloud
	// Whose asks the cloud which principal the token is for. It returns the principal's name, in
	// the form in which Principal returns it.
	Whose func(ctx context.Context, token auth.Token) (string, error)
	// Principal returns the name of the account's principal. For a token of this account, Whose
	// must return the same name. If Principal is nil, the suite calls Provider.GetIdentity instead.
	Principal func(account auth.Account) (string, error)
	// TrustStage is the stage at which a call fails if the cloud does not let the subject use the
	// identity. Empty means [auth.StageExchange].
	TrustStage auth.Stage
	// IdentityOptional is true if an account needs no identity to get a token.
	IdentityOptional bool
	// Direct is true if A and B are themselves principals of the cloud. Then neither can claim the
	// other's identity, and the suite does not test such claims.
	Direct bool
	// Credential is true if the proof itself is the credential. Then there is no exchange, and the
	// suite leaves out the tests of failing exchanges.
	Credential bool
	// Secrets returns the secret parts of a token. The suite calls it for tokens of Provider,
	// except registry credentials. It also calls it for proofs that are neither JWTs nor
	// certificates.
	Secrets func(token auth.Token) []string
	// ImageRepository is a repository for which both tenants can get registry credentials. It is
	// empty if the provider does not support registries.
	ImageRepository string
	// Unsupported has the options that the provider must refuse. Its keys name the test cases.
	// Optional.
	Unsupported map[string]auth.Option
	// Variations has lists of options. Its keys name the test cases. Each list must give a
	// different token, which also differs from the token of a call without options. Optional.
	Variations map[string][]auth.Option
}

// Cache is the cache that the suite's calls use. The *cache.Cache of package auth/cache implements
// it.
type Cache interface {
	auth.Cache
	// Invalidate drops the subject's tokens.
	Invalidate(subject auth.Subject)
}

// Cloud is the part of a local cloud that the suite controls.
type Cloud interface {
	// Exchanges returns how often the cloud was asked to exchange a proof for a token. If the proof
	// itself is the credential, Exchanges returns how many proofs were made.
	Exchanges() int
	// Trouble injects the given fault into every exchange, until the suite calls the returned
	// function.
	Trouble(t *testing.T, trouble Trouble) (end func())
	// Revoke withdraws the cloud's trust in the account's identity, until the suite calls the
	// returned function.
	Revoke(t *testing.T, account auth.Account) (restore func())
}

// Trouble is a kind of fault in an exchange.
type Trouble string

// The kinds of trouble.
const (
	// Slow: the answer comes after [SlowAnswer].
	Slow Trouble = "slow"
	// Throttled: the answer is that the client sent too many requests.
	Throttled Trouble = "throttled"
	// Failing: the answer is HTTP 5xx.
	Failing Trouble = "failing"
	// Broken: the answer is HTTP 200 with a truncated body.
	Broken Trouble = "broken"
	// Unreachable: there is no answer.
	Unreachable Trouble = "unreachable"
)

// SlowAnswer is how long a [Slow] exchange takes.
const SlowAnswer = 2 * time.Second

// Defect is what is wrong with a proof.
type Defect string

// The defects.
const (
	// None: the proof is correct.
	None Defect = ""
	// Expired: the proof expired an hour ago.
	Expired Defect = "expired"
	// Forged: the proof is signed with a key that the issuer never had.
	Forged Defect = "forged"
	// WrongIssuer: the cloud does not know the proof's issuer.
	WrongIssuer Defect = "wrong issuer"
)

// bench is the harness of one test, with the values and secrets that the test saw.
type bench struct {
	*Harness

	accounts *directory
	cache    Cache

	mu      sync.Mutex
	seen    []any
	secrets []string
}

func newBench(t *testing.T, harness func(t *testing.T) *Harness) *bench {
	t.Helper()
	h := harness(t)
	if h.Principal == nil {
		h.Principal = h.Provider.GetIdentity
	}
	h.TrustStage = cmp.Or(h.TrustStage, auth.StageExchange)
	b := &bench{Harness: h, cache: h.NewCache(t)}
	b.accounts = &directory{bench: b, live: map[auth.Subject]auth.Account{}, proving: make(chan struct{}, 1)}
	b.accounts.put(h.A)
	b.accounts.put(h.B)
	t.Cleanup(func() { b.scan(t) })
	return b
}

// with returns the options of a call for the account, including the harness's options.
func (b *bench) with(account auth.Account, more ...auth.Option) []auth.Option {
	opts := append(slices.Clone(b.Options), auth.WithSubject(account.Subject, b.accounts))
	return append(opts, more...)
}

func (b *bench) cached(more ...auth.Option) []auth.Option {
	return append([]auth.Option{auth.WithCache(b.cache, auth.InvolvedObject{})}, more...)
}

// get calls GetToken and records the token, the error and the secrets, so that scan can search for
// the secrets.
func (b *bench) get(ctx context.Context, opts ...auth.Option) (auth.Token, error) {
	token, err := auth.GetToken(ctx, b.Provider, opts...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, token, err)
	switch token := token.(type) {
	case nil:
	case *auth.RegistryCredentials:
		b.secrets = append(b.secrets, token.Password.Reveal())
	default:
		b.secrets = append(b.secrets, b.Secrets(token)...)
	}
	return token, err
}

func (b *bench) mustGet(t *testing.T, opts ...auth.Option) auth.Token {
	t.Helper()
	token, err := b.get(t.Context(), opts...)
	if err != nil {
		t.Fatalf("no token: %v", err)
	}
	if token.GetDuration() <= 0 {
		t.Fatalf("the token has expired: %s left", token.GetDuration())
	}
	return token
}

// belongs checks that, according to the cloud, the token is for the account's principal.
func (b *bench) belongs(t *testing.T, token auth.Token, account auth.Account) {
	t.Helper()
	want, err := b.Principal(account)
	must.Succeed(t, err)
	got, err := b.Whose(t.Context(), token)
	if err != nil {
		t.Fatalf("the cloud does not know the token: %v", err)
	}
	if got != want {
		t.Errorf("the token is for %s, want %s", got, want)
	}
}

// Signed returns a [Harness].Prove that makes JWTs by calling sign.
func Signed(
	sign func(account auth.Account, request auth.ProofRequest, defect Defect) (string, error),
) func(context.Context, auth.Account, auth.ProofRequest, Defect) (auth.Proof, error) {
	return func(_ context.Context, account auth.Account, request auth.ProofRequest, defect Defect) (auth.Proof, error) {
		token, err := sign(account, request, defect)
		if err != nil {
			return nil, err
		}
		return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: time.Now().Add(request.Lifetime)}, nil
	}
}

// secretsOf returns the secret parts of a proof.
func (b *bench) secretsOf(proof auth.Proof) []string {
	switch proof := proof.(type) {
	case *auth.JWT:
		return []string{proof.Token.Reveal()}
	case *auth.Certificate:
		// Return only the private scalar. The whole PKCS #8 key would contain public bytes too.
		key, ok := proof.TLS().PrivateKey.(*ecdsa.PrivateKey)
		if !ok {
			return nil // the key cannot leave its device, so no output can contain it
		}
		scalar, err := key.Bytes()
		if err != nil {
			return nil // crypto/ecdsa does not support the key's curve
		}
		return []string{string(scalar)}
	default:
		return b.Secrets(proof)
	}
}

// directory is the [auth.Accounts] of the suite. Its Lookup and its Read return the accounts in
// live. Its Prove calls the harness's function Prove.
type directory struct {
	bench *bench

	mu       sync.Mutex
	live     map[auth.Subject]auth.Account
	defect   Defect
	instead  auth.Account // replaces the requested account, unless instead.UID is empty
	audience string       // replaces the requested audience, unless empty
	other    bool         // if true, Prove returns the value of the next field, not a new proof
	proof    auth.Proof
	asked    auth.Form // the form of proof that the last call of Prove requested, such as a JWT
	proving  chan struct{}
}

func (d *directory) put(account auth.Account) {
	account.Attributes = maps.Clone(account.Attributes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[account.Subject] = account
}

// spoil changes how proofs are made, until behave is called.
func (d *directory) spoil(change func(*directory)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *directory) behave() {
	d.spoil(func(d *directory) {
		d.defect, d.audience, d.instead, d.other, d.proof = None, "", auth.Account{}, false, nil
	})
}

func (d *directory) form() auth.Form {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// Lookup implements [auth.AccountReader].
func (d *directory) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	account, ok := d.live[subject]
	if !ok {
		return auth.Account{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Fix: "create " + subject.String(), Err: errors.New("not found"),
		}
	}
	return account, nil
}

// Subscribe implements [auth.AccountReader]. It does nothing: the suite calls Invalidate itself.
func (*directory) Subscribe(func(auth.Subject)) {}

// Read implements [auth.Prover].
func (d *directory) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return d.Lookup(ctx, subject)
}

// Prove implements [auth.Prover].
func (d *directory) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	d.mu.Lock()
	d.asked = request.Form
	if d.other {
		defer d.mu.Unlock()
		return d.proof, nil
	}
	defect := d.defect
	if d.instead.UID != "" {
		account = d.instead
	}
	if d.audience != "" && request.Form == auth.FormJWT {
		request.Audiences = []string{d.audience}
	}
	d.mu.Unlock()
	select {
	// Tell the test that a proof is requested, before the proof is made. If the proof itself is the
	// credential, it may take long to make, and the test must not wait for it.
	case d.proving <- struct{}{}:
	default: // the test waits only for the first proof
	}
	proof, err := d.bench.Prove(ctx, account, request, defect)
	if err != nil {
		return nil, fmt.Errorf("the harness cannot prove: %w", err)
	}
	d.bench.mu.Lock()
	d.bench.seen = append(d.bench.seen, proof)
	d.bench.secrets = append(d.bench.secrets, d.bench.secretsOf(proof)...)
	d.bench.mu.Unlock()
	return proof, nil
}
