package providertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// Harness is a provider, a local cloud that it reaches, and two tenants. All fields are required unless they say otherwise.
type Harness struct {
	// Provider is the provider under test.
	Provider auth.Provider
	// Options are given with every call, such as a region. Optional.
	Options []auth.Option
	// A and B are subjects of two tenants. The cloud trusts each with its own identity, and with nothing else.
	A, B auth.Account
	// WithIdentity is the account with another identity; with none if identity is empty.
	WithIdentity func(account auth.Account, identity string) auth.Account
	// MalformedIdentity is text that cannot be an identity at this provider.
	MalformedIdentity string
	// Sign makes the evidence for account, with a defect if one is named.
	Sign func(account auth.Account, request auth.ProofRequest, defect Defect) (string, error)
	// NewCache makes an empty cache with room for a hundred tokens.
	NewCache func(t *testing.T) Cache
	// Cloud is the local cloud.
	Cloud Cloud
	// Whose asks the cloud whom token is for, in the form that Principal has.
	Whose func(ctx context.Context, token auth.Token) (string, error)
	// Principal is the cloud's name of whom a token of account is for; nil where that is what Provider.GetIdentity says.
	Principal func(account auth.Account) (string, error)
	// TrustStage is the stage in which the cloud refuses an identity to a subject; empty for [auth.StageExchange].
	TrustStage auth.Stage
	// IdentityOptional: an account without an identity is a principal of the cloud too.
	IdentityOptional bool
	// Direct: A and B are principals of the cloud themselves, so that neither has an identity which the other could claim.
	Direct bool
	// Secrets are the secret parts of a token of the provider's own type.
	Secrets func(token auth.Token) []string
	// ImageRepository is one that both tenants can get registry credentials for; empty if the provider has none.
	ImageRepository string
	// Unsupported are options that the provider must refuse, by name. Optional.
	Unsupported map[string]auth.Option
	// Variations are, by name, options that each lead to another token than no option and than each other.
	Variations map[string][]auth.Option
}

// Cache is the cache that calls are made with; *cache.Cache of package auth/cache is one.
type Cache interface {
	auth.Cache
	// Invalidate drops the subject's tokens.
	Invalidate(subject auth.Subject)
}

// Cloud is a local cloud, as far as the suite turns its knobs.
type Cloud interface {
	// Exchanges is how many exchanges of a proof the cloud was asked for.
	Exchanges() int
	// Trouble begins to befall every exchange, until end is called.
	Trouble(t *testing.T, trouble Trouble) (end func())
	// Revoke withdraws the trust in account's identity, until restore is called.
	Revoke(t *testing.T, account auth.Account) (restore func())
}

// Trouble is what befalls exchanges.
type Trouble string

// The troubles.
const (
	// Slow answers after [SlowAnswer].
	Slow Trouble = "slow"
	// Throttled answers that there were too many calls.
	Throttled Trouble = "throttled"
	// Failing answers with HTTP 5xx.
	Failing Trouble = "failing"
	// Broken answers HTTP 200 with half an answer.
	Broken Trouble = "broken"
	// Unreachable does not answer.
	Unreachable Trouble = "unreachable"
)

// SlowAnswer is how long a [Slow] cloud takes.
const SlowAnswer = 2 * time.Second

// Defect is what is wrong with a proof.
type Defect string

// The defects.
const (
	// None is wrong.
	None Defect = ""
	// Expired is a proof whose end is an hour ago.
	Expired Defect = "expired"
	// Forged is a proof signed with a key that the issuer never had.
	Forged Defect = "forged"
	// WrongIssuer is a proof of an issuer that the cloud does not know.
	WrongIssuer Defect = "wrong issuer"
)

// bench is one test's harness and what was seen while it ran.
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

// with are the options of a call for account, the harness's own included.
func (b *bench) with(account auth.Account, more ...auth.Option) []auth.Option {
	opts := append(slices.Clone(b.Options), auth.WithSubject(account.Subject, b.accounts, b.accounts))
	return append(opts, more...)
}

func (b *bench) cached(more ...auth.Option) []auth.Option {
	return append([]auth.Option{auth.WithCache(b.cache, auth.InvolvedObject{})}, more...)
}

// get calls GetToken and remembers what came of it.
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

// belongs checks at the cloud that token is for account.
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

// directory is the source of truth and the memory of it, and vouches for its subjects with the harness's Sign.
type directory struct {
	bench *bench

	mu       sync.Mutex
	live     map[auth.Subject]auth.Account
	defect   Defect
	instead  auth.Account // proven in place of whom was asked for, if it has a UID
	audience string       // the audience in place of the one that was asked for, if not empty
	proving  chan struct{}
}

func (d *directory) put(account auth.Account) {
	account.Attributes = maps.Clone(account.Attributes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[account.Subject] = account
}

// spoil changes what is proven, until behave.
func (d *directory) spoil(change func(*directory)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *directory) behave() {
	d.spoil(func(d *directory) { d.defect, d.audience, d.instead = None, "", auth.Account{} })
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
func (d *directory) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	d.mu.Lock()
	defect := d.defect
	if d.instead.UID != "" {
		account = d.instead
	}
	if d.audience != "" {
		request.Audience = d.audience
	}
	d.mu.Unlock()
	token, err := d.bench.Sign(account, request, defect)
	if err != nil {
		return auth.Proof{}, fmt.Errorf("the harness cannot sign: %w", err)
	}
	d.bench.mu.Lock()
	d.bench.secrets = append(d.bench.secrets, token)
	d.bench.mu.Unlock()
	select {
	case d.proving <- struct{}{}:
	default: // nobody needs to hear of so many
	}
	return auth.Proof{Token: auth.NewSecret(token), ExpiresAt: time.Now().Add(request.Lifetime)}, nil
}
