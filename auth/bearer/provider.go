package bearer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// Name is the provider's name in keys and metrics.
const Name = "bearer"

// UsernameAnnotation is the annotation with the user name for registries that ask for a user and a
// password. A ServiceAccount or a WorkloadIdentity may have it. The value has 1 to 255 printable
// ASCII characters, and no colon (RFC 7617, section 2).
const UsernameAnnotation = "lanyard.dev/registry-username"

// TargetAttribute is the name of the attribute whose value is a WorkloadIdentity's
// spec.targetSystem.type.
const TargetAttribute = "targetSystem.type"

// maxUsername is the maximum length of a user name in bytes.
const maxUsername = 255

// Config configures a [Provider]. With the zero value, the provider has no token for the program
// itself.
type Config struct {
	// Self is the ServiceAccount of the program itself, whose token is the controller's credential
	// ([auth.WithController]). Zero for none.
	Self auth.Subject
	// Prover makes proofs of Self. Required with Self.
	Prover auth.Prover
}

// Provider implements [auth.Provider]. It is safe for concurrent use.
type Provider struct{ config Config }

var (
	_ auth.Provider           = (*Provider)(nil)
	_ auth.ControllerProvider = (*Provider)(nil)
)

// NewProvider makes a Provider. It refuses a Self that is not a ServiceAccount, or has no Prover.
func NewProvider(config Config) (*Provider, error) {
	if !config.Self.IsZero() && (config.Self.Kind() != auth.KindServiceAccount || config.Prover == nil) {
		return nil, errors.New("bearer: Config.Self must be a ServiceAccount, with a Prover")
	}
	return &Provider{config}, nil
}

// GetName implements [auth.Provider].
func (*Provider) GetName() string { return Name }

// GetTarget implements [auth.Provider]. It refuses a call without audiences. Only a call for a
// WorkloadIdentity may have a context object. For any other subject, GetTarget leaves the context
// object out of the target, and [auth.GetToken] then refuses the call.
func (*Provider) GetTarget(options *auth.Options) (auth.Target, error) {
	unsupported := ""
	switch {
	case options.Audiences.IsZero():
		return auth.Target{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeAudienceRefused,
			Fix: "name the receivers of the token",
			Err: fmt.Errorf("provider %s needs audiences: a token without them would be for more receivers than one", Name),
		}
	case options.STSEndpoint != "" || options.STSRegion != "":
		unsupported = "a token service"
	case options.ProxyURL != nil:
		unsupported = "a proxy"
	}
	if unsupported != "" {
		return auth.Target{}, refusal.Unsupported(Name, unsupported, "leave out "+unsupported+": nothing is exchanged")
	}
	target := auth.Target{Audiences: options.Audiences}
	if options.Subject.Kind() == auth.KindWorkloadIdentity {
		target.Issuance = auth.NewIssuance(auth.IssuanceTerms{ContextObject: options.ContextObject})
	}
	return target, nil
}

// GetIdentity implements [auth.Provider]. It returns the user name in the account's annotation;
// empty without the annotation. It refuses a WorkloadIdentity whose target system is a cloud,
// because a server that gets its token could exchange the token at the cloud.
func (*Provider) GetIdentity(account auth.Account) (string, error) {
	at := fmt.Sprintf("%s %s/%s", account.Subject.Kind(), account.Subject.Namespace(), account.Subject.Name())
	if target := account.Attributes[TargetAttribute]; slices.Contains(clouds(), target) {
		return "", &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: "name a WorkloadIdentity of its own for this server, with another targetSystem.type",
			Err: fmt.Errorf("spec.targetSystem.type of %s is %s: a server that gets its token could use it at that cloud", at, target),
		}
	}
	user, named := account.Attributes[UsernameAnnotation]
	if !named {
		return "", nil
	}
	if user == "" || len(user) > maxUsername || strings.ContainsFunc(user, func(r rune) bool { return r < ' ' || r > '~' || r == ':' }) {
		return "", &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: "write a user name of 1 to 255 printable ASCII characters without colon, or remove the annotation",
			Err: fmt.Errorf("annotation %s of %s is not a user name", UsernameAnnotation, at),
		}
	}
	return user, nil
}

// clouds returns the values of a WorkloadIdentity's targetSystem.type that name a cloud with a
// token service. Package api/identity/v1alpha1 has constants for all of them except alicloud.
func clouds() []string { return []string{"aws", "azure", "gcp", "alibaba", "alicloud"} }

// GetProofRequest implements [auth.Provider].
func (*Provider) GetProofRequest(_ context.Context, request *auth.Request) (auth.ProofRequest, error) {
	return auth.ProofRequest{
		Form: auth.FormJWT, Audiences: request.Key.Audiences.Values(), Lifetime: auth.CredentialLifetime,
		ContextObject: request.Key.Issuance.Terms().ContextObject,
	}, nil
}

// NewToken implements [auth.Provider]. The token is the proof itself: an [*auth.JWT], or
// [*auth.RegistryCredentials] if the account names a user.
func (*Provider) NewToken(_ context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	jwt, err := auth.JWTOf(proof)
	if err != nil {
		return nil, err
	}
	if user := request.Key.Identity; user != "" {
		return &auth.RegistryCredentials{Username: user, Password: jwt.Token, ExpiresAt: jwt.ExpiresAt}, nil
	}
	return jwt, nil
}

// NewControllerToken implements [auth.ControllerProvider] with a token of Config.Self.
func (p *Provider) NewControllerToken(ctx context.Context, request *auth.Request) (auth.Token, error) {
	if p.config.Self.IsZero() {
		return nil, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectInvalid,
			Fix: "run this program as a ServiceAccount, or name a ServiceAccount",
			Err: errors.New("this program has no ServiceAccount whose token could be used"),
		}
	}
	account, err := p.config.Prover.Read(ctx, p.config.Self)
	if err != nil {
		return nil, err
	}
	asked, err := p.GetProofRequest(ctx, request)
	if err != nil {
		return nil, err
	}
	proof, err := p.config.Prover.Prove(ctx, account, asked)
	if err != nil {
		return nil, err
	}
	return p.NewToken(ctx, proof, request)
}
