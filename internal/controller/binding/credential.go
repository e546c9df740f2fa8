package binding

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/internal/delivery"
)

// credential is the content for a Secret, and its lifetime.
type credential struct {
	lifetime

	content delivery.Content
}

// lifetime is the time during which a credential is valid, in whole seconds.
type lifetime struct {
	issuedAt, expiresAt time.Time
	// kid is the ID of the key that signed a token; empty for an exchanged credential.
	kid string
}

// get gets the credential of a plan.
func (k *kind) get(ctx context.Context, p plan) (credential, error) {
	input := delivery.Input{Format: p.store.Format, Target: p.target, MountPath: p.store.MountPath}
	var lives lifetime
	var err error
	switch p.store.Format {
	case identityv1.StoreDockerConfigJSON:
		input.Logins, lives, err = k.logins(ctx, p)
	case identityv1.StoreAWSSessionKeys:
		input.Session, lives, err = k.session(ctx, p)
	default:
		input.Token, lives, err = k.token(ctx, p)
	}
	if err != nil {
		return credential{}, err
	}
	content, err := delivery.Render(input)
	return credential{lives, content}, err
}

// token gets a token of the issuer for the plan's audiences.
func (k *kind) token(ctx context.Context, p plan) (auth.Secret, lifetime, error) {
	got, err := auth.GetToken(ctx, issued{},
		auth.WithSubject(p.subject, p.accounts), auth.WithAudiences(p.audiences...), auth.WithContextObject(p.context), auth.WithObserver(k.Observer))
	if err != nil {
		return auth.Secret{}, lifetime{}, err
	}
	jwt, err := auth.JWTOf(got)
	if err != nil {
		return auth.Secret{}, lifetime{}, err
	}
	lives, err := lifetimeOf(jwt.Token.Reveal())
	return jwt.Token, lives, err
}

// session gets an AWS session.
func (k *kind) session(ctx context.Context, p plan) (*delivery.Session, lifetime, error) {
	provider, options, err := k.exchange(p)
	if err != nil {
		return nil, lifetime{}, err
	}
	got, err := auth.GetToken(ctx, provider, options...)
	if err != nil {
		return nil, lifetime{}, err
	}
	session, ok := got.(*aws.Token)
	if !ok {
		return nil, lifetime{}, fmt.Errorf("a %T is not a session of AWS", got)
	}
	return &delivery.Session{
		AccessKeyID: session.AccessKeyID, SecretAccessKey: session.SecretAccessKey, SessionToken: session.SessionToken,
		ExpiresAt: session.ExpiresAt, Region: p.config["region"],
	}, from(time.Now(), session.ExpiresAt), nil
}

// logins gets logins for the plan's repositories. Repositories with the same token key share one
// login.
func (k *kind) logins(ctx context.Context, p plan) ([]delivery.Login, lifetime, error) {
	now := time.Now()
	var logins []delivery.Login
	var lives lifetime
	got := map[auth.Key]*auth.RegistryCredentials{}
	for _, image := range p.store.Images {
		provider, options, err := k.exchange(p, auth.WithImageRepository(image))
		if err != nil {
			return nil, lifetime{}, err
		}
		key, err := auth.Resolve(ctx, provider, options...)
		if err != nil {
			return nil, lifetime{}, err
		}
		if got[key] == nil {
			token, err := auth.GetToken(ctx, provider, options...)
			if err != nil {
				return nil, lifetime{}, err
			}
			credentials, ok := token.(*auth.RegistryCredentials)
			if !ok {
				return nil, lifetime{}, fmt.Errorf("a %T is not a login", token)
			}
			got[key] = credentials
		}
		logins = append(logins, delivery.Login{Repository: image, Credentials: got[key]})
		if ends := from(now, got[key].ExpiresAt); lives.expiresAt.IsZero() || ends.expiresAt.Before(lives.expiresAt) {
			lives = ends
		}
	}
	return logins, lives, nil
}

// exchange returns the provider of the plan's cloud, and the options for getting tokens from it.
func (k *kind) exchange(p plan, more ...auth.Option) (auth.Provider, []auth.Option, error) {
	provider, err := k.Provider(p.target.Type)
	if err != nil {
		return nil, nil, err
	}
	options := []auth.Option{auth.WithSubject(p.subject, p.accounts), auth.WithObserver(k.Observer)}
	if region := p.config["region"]; region != "" {
		options = append(options, auth.WithSTSRegion(region))
	}
	return provider, append(options, more...), nil
}

// from returns the lifetime of an exchanged credential. The arguments are the time of the exchange
// and the time when the credential expires.
func from(now, end time.Time) lifetime {
	return lifetime{issuedAt: now.Truncate(time.Second).UTC(), expiresAt: end.Truncate(time.Second).UTC()}
}

// jitter returns a random factor around 1, so that credentials of the same age are not all renewed
// at the same moment.
func jitter() float64 {
	return 0.9 + 0.2*rand.Float64() //nolint:gosec // spreads load; not a secret
}

// issued is a provider without an exchange: the token from the token server is the credential. The
// token server decides how long the token lives.
type issued struct{}

var _ auth.Provider = issued{}

// GetName implements [auth.Provider].
func (issued) GetName() string { return "lanyard" }

// GetTarget implements [auth.Provider].
func (issued) GetTarget(options *auth.Options) (auth.Target, error) {
	return auth.Target{Audiences: options.Audiences, Issuance: auth.NewIssuance(auth.IssuanceTerms{ContextObject: options.ContextObject})}, nil
}

// GetIdentity implements [auth.Provider].
func (issued) GetIdentity(auth.Account) (string, error) { return "", nil }

// GetProofRequest implements [auth.Provider]. It requests the longest lifetime that the schema of
// WorkloadIdentities allows. The token server shortens it to the identity's spec.duration.
func (issued) GetProofRequest(_ context.Context, request *auth.Request) (auth.ProofRequest, error) {
	return auth.ProofRequest{
		Form: auth.FormJWT, Audiences: request.Key.Audiences.Values(), Lifetime: longest, ContextObject: request.Key.Issuance.Terms().ContextObject,
	}, nil
}

// NewToken implements [auth.Provider].
func (issued) NewToken(_ context.Context, proof auth.Proof, _ *auth.Request) (auth.Token, error) {
	return auth.JWTOf(proof)
}

// longest is the longest life of a credential that goes into a Secret.
const longest = 48 * time.Hour
