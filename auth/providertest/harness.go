package providertest

import (
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
)

// Harness is a provider, a local cloud and two tenants. All fields are required unless they say
// otherwise.
type Harness struct {
	// Provider is the provider under test.
	Provider auth.Provider
	// Options are options of every call, such as a region. Optional.
	Options []auth.Option
	// A and B are subjects of two tenants. The cloud gives each only its own identity.
	A, B auth.Account
	// WithIdentity returns the account with another identity, or without one if identity is empty.
	WithIdentity func(account auth.Account, identity string) auth.Account
	// MalformedIdentity is a text that cannot be an identity at this provider.
	MalformedIdentity string
	// Prove makes the proof of account that the provider asks for, with the defect. [Signed] makes
	// a Prove from a function that signs JWTs.
	Prove func(ctx context.Context, account auth.Account, request auth.ProofRequest, defect Defect) (auth.Proof, error)
	// NewCache makes an empty cache with room for a hundred tokens.
	NewCache func(t *testing.T) Cache
	// Cloud is the local cloud.
	Cloud Cloud
	// Whose asks the cloud for the principal of token, in the form of Principal.
	Whose func(ctx context.Context, token auth.Token) (string, error)
	// Principal returns the cloud's name for the principal of a token of account. Nil if this name
	// is the result of Provider.GetIdentity.
	Principal func(account auth.Account) (string, error)
	// TrustStage is the stage in which the cloud refuses an identity to a subject; empty for
	// [auth.StageExchange].
	TrustStage auth.Stage
	// IdentityOptional: an account without an identity is a principal of the cloud too.
	IdentityOptional bool
	// Direct: A and B are themselves principals of the cloud. Neither has an identity that the
	// other could claim.
	Direct bool
	// Credential: the proof itself is the credential. It is not verified before its use, so the
	// suite leaves out the tests of exchanges that fail.
	Credential bool
	// Secrets returns the secret parts of a token of the provider's own type, or of a proof that is
	// neither JWT nor certificate.
	Secrets func(token auth.Token) []string
	// ImageRepository is a repository for which both tenants can get registry credentials; empty if
	// the provider has none.
	ImageRepository string
	// Unsupported are options that the provider must refuse, by name. Optional.
	Unsupported map[string]auth.Option
	// Variations are options, by name. Each leads to a token that differs from those of the others
	// and of a call without options.
	Variations map[string][]auth.Option
}

// Cache is the cache of the suite's calls. The *cache.Cache of package auth/cache implements it.
type Cache interface {
	auth.Cache
	// Invalidate drops the subject's tokens.
	Invalidate(subject auth.Subject)
}

// Cloud is the part of a local cloud that the suite controls.
type Cloud interface {
	// Exchanges returns how many exchanges of a proof the cloud was asked for. If proofs are
	// themselves the credential, it returns how many were made.
	Exchanges() int
	// Trouble makes every exchange fail, or slow, as trouble says, until the suite calls end.
	Trouble(t *testing.T, trouble Trouble) (end func())
	// Revoke withdraws the cloud's trust in account's identity, until the suite calls restore.
	Revoke(t *testing.T, account auth.Account) (restore func())
}

// Trouble is a fault of exchanges.
type Trouble string

// The troubles.
const (
	// Slow answers after [SlowAnswer].
	Slow Trouble = "slow"
	// Throttled answers that there were too many calls.
	Throttled Trouble = "throttled"
	// Failing answers with HTTP 5xx.
	Failing Trouble = "failing"
	// Broken answers with HTTP 200 and half an answer.
	Broken Trouble = "broken"
	// Unreachable does not answer.
	Unreachable Trouble = "unreachable"
)

// SlowAnswer is how long a [Slow] exchange takes.
const SlowAnswer = 2 * time.Second

// Defect says what is wrong with a proof.
type Defect string

// The defects.
const (
	// None: the proof is correct.
	None Defect = ""
	// Expired: the proof ended an hour ago.
	Expired Defect = "expired"
	// Forged: the proof is signed with a key that the issuer never had.
	Forged Defect = "forged"
	// WrongIssuer: the cloud does not know the proof's issuer.
	WrongIssuer Defect = "wrong issuer"
)

// bench is the harness of one test, and the values that the test saw.
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
	if h.TrustStage == "" {
		h.TrustStage = auth.StageExchange
	}
	b := &bench{Harness: h, cache: h.NewCache(t)}
	b.accounts = &directory{bench: b, live: map[auth.Subject]auth.Account{}, proving: make(chan struct{}, 1)}
	b.accounts.put(h.A)
	b.accounts.put(h.B)
	t.Cleanup(func() { b.scan(t) })
	return b
}

// with returns the options of a call for account, with those of the harness.
func (b *bench) with(account auth.Account, more ...auth.Option) []auth.Option {
	opts := append(slices.Clone(b.Options), auth.WithSubject(account.Subject, b.accounts, b.accounts))
	return append(opts, more...)
}

func (b *bench) cached(more ...auth.Option) []auth.Option {
	return append([]auth.Option{auth.WithCache(b.cache, auth.InvolvedObject{})}, more...)
}

// get calls GetToken and remembers the results.
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

// belongs asks the cloud, and checks that token is for account.
func (b *bench) belongs(t *testing.T, token auth.Token, account auth.Account) {
	t.Helper()
	want, err := b.Principal(account)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Whose(t.Context(), token)
	if err != nil {
		t.Fatalf("the cloud does not know the token: %v", err)
	}
	if got != want {
		t.Errorf("the token is for %s, want %s", got, want)
	}
}

// Signed returns a [Harness].Prove that makes JWTs with sign.
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
		// The scalar alone: PKCS #8 also contains the public key, which is not secret.
		key, ok := proof.TLS().PrivateKey.(*ecdsa.PrivateKey)
		if !ok {
			return nil // the key cannot leave its device
		}
		scalar, err := key.Bytes()
		if err != nil {
			return nil // a curve of the harness's own
		}
		return []string{string(scalar)}
	default:
		return b.Secrets(proof)
	}
}

// directory is the source of truth of the subjects and the memory of it. It proves them with the
// harness's Prove.
type directory struct {
	bench *bench

	mu       sync.Mutex
	live     map[auth.Subject]auth.Account
	defect   Defect
	instead  auth.Account // if it has a UID, it is proven in place of the requested account
	audience string       // if not empty, it replaces the requested audience
	other    bool         // Prove returns the field proof
	proof    auth.Proof
	asked    auth.Form // the form of the last request
	proving  chan struct{}
}

func (d *directory) put(account auth.Account) {
	account.Attributes = maps.Clone(account.Attributes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[account.Subject] = account
}

// spoil changes the proofs, until behave.
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

// Subscribe implements [auth.AccountReader]; the suite invalidates by itself.
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
	case d.proving <- struct{}{}: // before the proof: if it is itself the credential, making it is the slow part
	default: // the test waits for one proof only
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
