package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
)

// GetToken gets a token for the subject that the options name, at provider. With [WithImageRepository] it is
// [*RegistryCredentials], otherwise the provider's own type.
//
// Errors are [*Error] (never with anything secret in them), or wrap the cause of ctx's end. A cancelled caller returns
// at once; the exchange it began goes on for the others.
func GetToken(ctx context.Context, provider Provider, opts ...Option) (Token, error) {
	c := calls.Get().(*call)
	c.provider = provider

	//  1. Whose token? Nobody's is an error; the controller's only if asked for by name.
	if err := c.options(opts); err != nil {
		return nil, err
	}
	//  2. What do the options come to for this provider: region, endpoint, registry?
	//  3. Who is the subject now, as far as memory knows?
	//  4. Which cloud identity does it ask for?
	//  5. All that is the key.
	err := c.resolve(ctx)
	// Memory may not know a subject that the source of truth has: accounts can be younger than what informers saw.
	unknown := err != nil && CodeOf(err) == CodeSubjectNotFound
	if err != nil && !unknown {
		return nil, err
	}
	//  6. The cache answers without I/O, or has it done once for all who ask.
	if c.Cache == nil {
		fetched, err := c.fetch(ctx)
		return fetched.Token, err
	}
	if !unknown {
		if token, ok := c.Cache.Get(c.key, c.MinRemaining, c.InvolvedObject); ok {
			*c = call{}
			calls.Put(c)
			return token, nil
		}
	}
	return c.Cache.Fetch(ctx, c.key, c.fetchOptions(), c.fetch)
}

// calls keeps what hits work on from being garbage. A call that fetches is not given back: its flight may outlive it.
//
//nolint:gochecknoglobals // a pool of zero values holds no state.
var calls = sync.Pool{New: func() any { return new(call) }}

// Resolve takes the steps of [GetToken] that need no proof and no exchange: it tells which token a call would get, from
// memory alone. Its errors are GetToken's.
func Resolve(ctx context.Context, provider Provider, opts ...Option) (Key, error) {
	c := call{provider: provider}
	if err := c.options(opts); err != nil {
		return Key{}, err
	}
	err := c.resolve(ctx)
	return c.key, err
}

// call is one run of GetToken.
type call struct {
	Options
	provider Provider
	target   Target
	key      Key
}

func (c *call) options(opts []Option) error {
	for _, opt := range opts {
		opt(&c.Options)
	}
	if c.err != nil {
		return c.err
	}
	if c.Subject.IsZero() {
		return &Error{
			Stage: StageSubject, Code: CodeSubjectInvalid,
			Fix: "name a ServiceAccount, or ask for the controller's identity by name",
			Err: errors.New("no subject was given"),
		}
	}
	return supports(c.provider, &c.Options)
}

func (c *call) resolve(ctx context.Context) error {
	var err error
	if c.target, err = c.provider.GetTarget(&c.Options); err != nil {
		return err
	}
	if c.Subject.Kind() == KindController {
		c.key = c.keyFor(Account{Subject: c.Subject}, "")
		return nil
	}
	account, err := c.Accounts.Lookup(ctx, c.Subject)
	if err != nil {
		c.key = c.keyFor(Account{Subject: c.Subject}, "")
		return err
	}
	identity, err := c.provider.GetIdentity(account)
	if err != nil {
		return err
	}
	c.key = c.keyFor(account, identity)
	return nil
}

func (c *call) keyFor(account Account, identity string) Key {
	key := Key{
		Provider:    c.provider.GetName(),
		Subject:     c.Subject,
		UID:         account.UID,
		Identity:    identity,
		Scopes:      c.Scopes,
		Image:       c.target.Image,
		STSEndpoint: c.target.STSEndpoint,
		STSRegion:   c.target.STSRegion,
	}
	if key.STSEndpoint != "" {
		key.ProxyURL = c.proxyKey
	}
	return key
}

func (c *call) fetchOptions() FetchOptions {
	return FetchOptions{MinRemaining: c.MinRemaining, RetryNow: c.RetryNow, InvolvedObject: c.InvolvedObject}
}

// fetch makes the proof and the exchange. It reads the subject at its source of truth first, so that the proof, the
// identity and the key are of one moment, whatever memory said.
func (c *call) fetch(ctx context.Context) (Fetched, error) {
	request := &Request{Key: c.key, ImageRepository: c.ImageRepository, ProxyURL: c.ProxyURL}
	var proof Proof
	if c.Subject.Kind() != KindController {
		account, err := c.read(ctx)
		if err != nil {
			return Fetched{}, err
		}
		identity, err := c.provider.GetIdentity(account)
		if err != nil {
			return Fetched{}, err
		}
		request.Key, request.Account = c.keyFor(account, identity), account
		//  7. The proof: for one receiver, short-lived, and of the very account that was read.
		if proof, err = c.prove(ctx, request); err != nil {
			return Fetched{}, err
		}
	}
	//  8. The proof is exchanged for a token, 9. and the token for registry credentials if an image asks for them.
	token, err := c.exchange(ctx, proof, request)
	if err != nil {
		return Fetched{}, err
	}
	if err := usable(token, request.Key.Provider); err != nil {
		return Fetched{}, err
	}
	// 10. The cache keeps it, if it is the one that was asked for.
	return Fetched{Token: token, Key: request.Key}, nil
}

// usable refuses answers that are no token, or none any more.
func usable(token Token, provider string) error {
	switch {
	case token == nil:
		return &Error{
			Stage: StageExchange, Code: CodeResponseInvalid,
			Fix: "report this as a fault of provider " + provider,
			Err: fmt.Errorf("%s answered without a token", provider),
		}
	case token.GetDuration() <= 0:
		return &Error{
			Stage: StageExchange, Code: CodeResponseInvalid,
			Fix: "compare the clocks of this machine and of " + provider,
			Err: fmt.Errorf("%s issued a token that has already expired", provider),
		}
	default:
		return nil
	}
}

func (c *call) read(ctx context.Context) (Account, error) {
	account, err := c.Prover.Read(ctx, c.Subject)
	if err != nil {
		return Account{}, err
	}
	if account.Subject != c.Subject || account.UID == "" {
		return Account{}, &Error{
			Stage: StageSubject, Code: CodeSubjectInvalid,
			Fix: "have the Prover return the subject it was asked for, with its UID",
			Err: fmt.Errorf("asked for %s, read %s with UID %q", c.Subject, account.Subject, account.UID),
		}
	}
	return account, nil
}

func (c *call) prove(ctx context.Context, request *Request) (Proof, error) {
	var proof Proof
	err := observe(c.Observer, request.Key.Provider, StageTokenRequest, func() error {
		audience, err := c.provider.GetAudience(ctx, request)
		if err != nil {
			return err
		}
		if audience == "" {
			return &Error{
				Stage: StageTokenRequest, Code: CodeAudienceRefused,
				Fix: "have the provider name the receiver of the proof",
				Err: fmt.Errorf("provider %s names no audience", request.Key.Provider),
			}
		}
		asked := ProofRequest{Audience: audience, Lifetime: ProofLifetime}
		if p, ok := c.provider.(ProofProvider); ok {
			asked.Lifetime = cmp.Or(p.GetProofLifetime(request), ProofLifetime)
		}
		proof, err = c.Prover.Prove(ctx, request.Account, asked)
		return err
	})
	return proof, err
}

// exchange gets a token of exactly what request.Key says: from the security token service first, then from the registry.
func (c *call) exchange(ctx context.Context, proof Proof, request *Request) (Token, error) {
	var token Token
	err := observe(c.Observer, request.Key.Provider, StageExchange, func() (err error) {
		if c.Subject.Kind() == KindController {
			token, err = c.provider.(ControllerProvider).NewControllerToken(ctx, request)
		} else {
			token, err = c.provider.NewTokenForServiceAccount(ctx, proof, request)
		}
		return err
	})
	if err != nil || token == nil || request.ImageRepository == "" {
		return token, err
	}
	err = observe(c.Observer, request.Key.Provider, StageRegistry, func() error {
		credentials, err := c.provider.(RegistryProvider).NewRegistryToken(ctx, token, request)
		if token = nil; credentials != nil { // else the interface would not be nil
			token = credentials
		}
		return err
	})
	return token, err
}
