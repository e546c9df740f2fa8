package auth

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"time"
)

// Provider turns the proof of a subject into a token. It exchanges the proof at a cloud, or returns
// the proof as the credential. The method names come from Flux RFC-0010 (multi-tenant workload
// identity). Implementations are safe for concurrent use.
type Provider interface {
	// GetName returns the provider's name in object specs: aws, azure, gcp.
	GetName() string
	// GetTarget returns the part of the token's [Key] that the provider derives from the options.
	// It does no I/O, because every GetToken calls it. It must not keep options, because GetToken
	// reuses them. It refuses
	//
	//   - an option that is unsupported or invalid
	//   - a call whose target it cannot resolve, such as a call without a region
	//   - an endpoint that is neither the provider's own nor allowed by the provider's
	//     configuration
	GetTarget(options *Options) (Target, error)
	// GetIdentity returns the cloud identity that the account's attributes name, in canonical form.
	// For AWS, it is a role ARN. GetIdentity does no I/O, because every GetToken with Accounts
	// calls it.
	GetIdentity(account Account) (string, error)
	// GetProofRequest says which proof NewToken needs for the request. It refuses a request that
	// would fail with any proof. It may ask the cloud's metadata service.
	GetProofRequest(ctx context.Context, request *Request) (ProofRequest, error)
	// NewToken exchanges a proof of the request's subject for the requested token. It reads the
	// proof with [JWTOf] or [CertificateOf], which refuse a proof of another form.
	NewToken(ctx context.Context, proof Proof, request *Request) (Token, error)
}

// ControllerProvider is a [Provider] that can also get tokens for the program's own identity.
type ControllerProvider interface {
	Provider
	// NewControllerToken gets the requested token with the identity that the program's environment
	// configures.
	NewControllerToken(ctx context.Context, request *Request) (Token, error)
}

// RegistryProvider is a [Provider] whose tokens can be exchanged for registry credentials.
type RegistryProvider interface {
	Provider
	// NewRegistryToken exchanges the token for credentials for request.ImageRepository.
	NewRegistryToken(ctx context.Context, token Token, request *Request) (*RegistryCredentials, error)
}

// Target is the part of a [Key] that the provider derives from the options.
type Target struct {
	// Scopes limit what the token may do.
	Scopes List
	// Image is the part of the image repository that decides the registry credentials, such as a
	// region for AWS. Empty if the call names no repository.
	Image string
	// STSEndpoint is the security token service that issues the token, in canonical form. Empty for
	// the provider's own.
	STSEndpoint string
	// Audiences are the receivers of a JWT that serves as the credential without an exchange.
	Audiences List
	// STSRegion is the region of the security token service. A token may be valid only in certain
	// regions. Empty for providers without regions.
	STSRegion string
	// Issuance has the terms of a token that Lanyard or a SPIFFE broker issues. Zero for a token
	// from an exchange.
	Issuance Issuance
}

// Request is the input of one exchange.
type Request struct {
	// Key decides which token is issued.
	Key Key
	// Account is the subject's account, as [Prover.Read] returned it for this exchange. It is zero
	// if [Options].Accounts is nil, as with [WithController].
	Account Account
	// ImageRepository is the repository that the registry credentials are for: host/path. Key.Image
	// is the part of the repository that decides the credentials.
	ImageRepository string
	// ProxyURL is the HTTP proxy for the calls of this exchange; nil for the provider's own
	// transport.
	ProxyURL *url.URL

	cache Cache // the call's cache; nil for no cache
	fetch FetchOptions
}

// Tenant returns the namespace towards whose limits the exchange counts; see [FetchOptions]. The
// result is empty if the program itself, and no tenant, needs the token.
func (r *Request) Tenant() string { return r.fetch.Tenant }

// Step returns an intermediate token, which the provider needs to get the requested token. The
// intermediate token is for the given identity, which the subject's attributes must name. The
// call's cache stores the intermediate token like any other. All calls that need the same
// intermediate token share one call of fetch. The errors are those of fetch and of [Cache].Fetch.
func (r *Request) Step(ctx context.Context, identity string, fetch func(context.Context) (Token, error)) (Token, error) {
	if r.cache == nil {
		return fetch(ctx)
	}
	key := r.Key
	key.Identity, key.Image = identity, ""
	// A fingerprint contains no slash, so no token that a caller requests has this key.
	key.IdentityFingerprint += "/step"
	options := r.fetch
	options.MinRemaining = 0
	fetched, err := r.cache.Fetch(ctx, key, options, func(ctx context.Context) (Fetched, error) {
		token, err := fetch(ctx)
		if err != nil {
			return Fetched{}, err
		}
		return Fetched{Token: token, Key: key}, checkToken(token, key.Provider)
	})
	return fetched.Token, err
}

// Format prints only the key, for every verb, because the proxy's URL may hold a password.
func (r Request) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, r.Key.String()) }

// refuseUnsupported refuses an option if the provider lacks the interface that the option needs. It
// also refuses a tenant's subject if Options.Accounts is nil. It runs before the provider resolves
// the options.
func refuseUnsupported(provider Provider, o *Options) error {
	if o.Accounts == nil {
		if !o.Subject.Lent() {
			return withoutProver(o.Subject)
		}
		if _, ok := provider.(ControllerProvider); !ok {
			return unsupported(provider, "the controller's own identity", "name a ServiceAccount")
		}
	}
	if o.ImageRepository != "" {
		if _, ok := provider.(RegistryProvider); !ok {
			return unsupported(provider, "registry credentials", "leave out the image repository")
		}
	}
	return nil
}

// refuseIgnored refuses options that the provider left out of its target: no option is ignored
// silently.
func refuseIgnored(provider Provider, o *Options, target *Target) error {
	switch {
	case !o.Audiences.IsZero() && target.Audiences != o.Audiences:
		return unsupported(provider, "audiences", "leave out the audiences: the provider names the receiver of the proof")
	case o.ContextObject != (ObjectReference{}) && target.Issuance.Terms().ContextObject != o.ContextObject:
		return unsupported(provider, "a context object for "+o.Subject.String(), "leave out the context object")
	case !o.Scopes.IsZero() && target.Scopes.IsZero():
		return unsupported(provider, "scopes", "leave out the scopes")
	default:
		return nil
	}
}

// withoutProver is the error for a tenant's subject if [Options].Accounts is nil. Nobody can then
// prove the subject. Without this error, the call would return a token of the program itself.
func withoutProver(subject Subject) error {
	return &Error{
		Stage: StageSubject, Code: CodeSubjectInvalid,
		Fix: "pass Accounts, which package auth/kube makes",
		Err: fmt.Errorf("subject %s has no Accounts to prove it", subject),
	}
}

func unsupported(provider Provider, what, fix string) error {
	return &Error{
		Stage: StageSubject, Code: CodeOptionUnsupported, Fix: fix,
		Err: fmt.Errorf("provider %s does not support %s", provider.GetName(), what),
	}
}

// observe runs a stage and reports its outcome and duration to the observer, if there is one.
func observe[T any](observer Observer, provider string, stage Stage, run func() (T, error)) (T, error) {
	if observer == nil {
		return run()
	}
	start := time.Now()
	result, err := run()
	outcome := "success"
	if err != nil {
		outcome = cmp.Or(string(CodeOf(err)), "error")
	}
	observer.ObserveStage(provider, stage, outcome, time.Since(start))
	return result, err
}
