package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
)

// GetToken gets a token from provider for the subject that the options name. With
// [WithImageRepository] the token is [*RegistryCredentials]; otherwise it has the provider's own
// type.
//
// An error either is an [*Error], which contains no secret, or wraps [context.Cause] of ctx. When
// ctx ends, GetToken returns at once. An exchange that it started for a cache continues, because
// other callers may wait for the token.
func GetToken(ctx context.Context, provider Provider, opts ...Option) (Token, error) {
	token, _, err := GetTokenAndKey(ctx, provider, opts...)
	return token, err
}

// GetTokenAndKey is like [GetToken] and also returns the key of the issued token. Key.Identity is
// the cloud identity that the token was issued for. [Resolve] may return another identity, because
// the subject may have changed since the token was issued.
func GetTokenAndKey(ctx context.Context, provider Provider, opts ...Option) (Token, Key, error) {
	c := calls.Get().(*call)
	c.provider = provider

	//  1. Set the options. One of them must name the subject; WithController names the program.
	if err := c.apply(opts); err != nil {
		return nil, Key{}, err
	}
	//  2. Ask the provider to resolve the options: region, endpoint, registry.
	//  3. Look up the subject in memory.
	//  4. Ask the provider which cloud identity the subject wants.
	//  5. Make the token's key from these answers.
	err := c.resolve(ctx)
	// Memory may lack a subject that exists, because an informer can be behind. So the call does
	// not end here: fetch reads the subject from its source of truth.
	unknown := err != nil && CodeOf(err) == CodeSubjectNotFound
	if err != nil && !unknown {
		return nil, Key{}, err
	}
	//  6. Ask the cache. A hit needs no I/O. On a miss, one caller fetches the token for all.
	if c.Cache == nil {
		fetched, err := c.fetch(ctx)
		return fetched.Token, fetched.Key, err
	}
	if !unknown {
		if token, ok := c.Cache.Get(c.key, c.MinRemaining, c.InvolvedObject); ok {
			key := c.key
			*c = call{}
			calls.Put(c)
			return token, key, nil
		}
	}
	fetched, err := c.Cache.Fetch(ctx, c.key, c.fetchOptions(), c.fetch)
	return fetched.Token, fetched.Key, err
}

// calls is a pool of call values, so that cache hits do not allocate. A call that fetches does not
// return to the pool, because its fetch may still run after GetToken returns.
//
//nolint:gochecknoglobals // a pool of zero values holds no state.
var calls = sync.Pool{New: func() any { return new(call) }}

// Resolve returns the key of the token that [GetToken] would get. It answers from memory, without a
// proof and without an exchange. Its errors are those of GetToken.
func Resolve(ctx context.Context, provider Provider, opts ...Option) (Key, error) {
	c := call{provider: provider}
	if err := c.apply(opts); err != nil {
		return Key{}, err
	}
	if err := c.resolve(ctx); err != nil {
		return Key{}, err
	}
	return c.key, nil
}

// call is the state of one GetToken call.
type call struct {
	Options
	provider Provider
	key      Key
}

// apply sets the options, and refuses a call without a subject.
func (c *call) apply(opts []Option) error {
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
	return refuseUnsupported(c.provider, &c.Options)
}

// resolve sets the token's key. It uses the options and the subject's account from memory.
func (c *call) resolve(ctx context.Context) error {
	c.key.Provider, c.key.Subject = c.provider.GetName(), c.Subject
	var err error
	if c.key.Target, err = c.provider.GetTarget(&c.Options); err != nil {
		return err
	}
	if err := refuseIgnored(c.provider, &c.Options, &c.key.Target); err != nil {
		return err
	}
	if c.key.STSEndpoint != "" {
		c.key.ProxyURL = c.proxyKey
	}
	if c.Accounts == nil {
		return nil
	}
	account, err := c.Accounts.Lookup(ctx, c.Subject)
	if err != nil {
		return err
	}
	identity, err := c.provider.GetIdentity(account)
	if err != nil {
		return err
	}
	c.key.setAccount(&account, identity)
	return nil
}

func (c *call) fetchOptions() FetchOptions {
	borrowed := c.Subject.Lent() && c.Tenant != ""
	return FetchOptions{
		Tenant: cmp.Or(c.Subject.Namespace(), c.Tenant), MinRemaining: c.MinRemaining, RetryNow: c.RetryNow && !borrowed,
		InvolvedObject: c.InvolvedObject,
	}
}

// fetch reads the subject, gets a proof of it and exchanges the proof for a token. It reads the
// subject from the source of truth, not from memory. So proof, identity and key describe the
// subject at the same moment.
func (c *call) fetch(ctx context.Context) (Fetched, error) {
	request := &Request{Key: c.key, ImageRepository: c.ImageRepository, ProxyURL: c.ProxyURL, cache: c.Cache, fetch: c.fetchOptions()}
	var proof Proof
	if c.Accounts != nil {
		account, err := c.read(ctx)
		if err != nil {
			return Fetched{}, err
		}
		identity, err := c.provider.GetIdentity(account)
		if err != nil {
			return Fetched{}, err
		}
		request.Account = account
		request.Key.setAccount(&account, identity)
		//  7. Get a short-lived proof of exactly the account that was read.
		if proof, err = c.prove(ctx, request); err != nil {
			return Fetched{}, err
		}
	}
	//  8. Exchange the proof for a token.
	//  9. If the call names an image repository, exchange the token for registry credentials.
	token, err := c.exchange(ctx, proof, request)
	if err != nil {
		return Fetched{}, err
	}
	if err := checkToken(token, request.Key.Provider); err != nil {
		return Fetched{}, err
	}
	// 10. The cache stores the token only if request.Key is still the key of step 5.
	return Fetched{Token: token, Key: request.Key}, nil
}

// checkToken refuses a missing token and an expired token.
func checkToken(token Token, provider string) error {
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
	account, err := c.Accounts.Read(ctx, c.Subject)
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
	return observe(c.Observer, request.Key.Provider, StageTokenRequest, func() (Proof, error) {
		asked, err := c.provider.GetProofRequest(ctx, request)
		if err != nil {
			return nil, err
		}
		if err := asked.check(request.Key.Provider); err != nil {
			return nil, err
		}
		asked.Lifetime = cmp.Or(asked.Lifetime, ProofLifetime)
		return c.Accounts.Prove(ctx, request.Account, asked)
	})
}

// exchange gets the token of request.Key from the security token service. If the request names an
// image repository, exchange then gets registry credentials for this token.
func (c *call) exchange(ctx context.Context, proof Proof, request *Request) (Token, error) {
	token, err := observe(c.Observer, request.Key.Provider, StageExchange, func() (Token, error) {
		if c.Accounts == nil {
			return c.provider.(ControllerProvider).NewControllerToken(ctx, request)
		}
		return c.provider.NewToken(ctx, proof, request)
	})
	if err != nil || token == nil || request.ImageRepository == "" {
		return token, err
	}
	return observe(c.Observer, request.Key.Provider, StageRegistry, func() (Token, error) {
		credentials, err := c.provider.(RegistryProvider).NewRegistryToken(ctx, token, request)
		if credentials == nil {
			return nil, err // an untyped nil, because an interface with a nil pointer is not nil
		}
		return credentials, err
	})
}
