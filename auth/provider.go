package auth

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"
)

// Provider is one cloud: what must be known before there is anything to exchange, and the exchange of a proof for a token. The names
// are those of the multi-tenant workload identity design. Implementations are safe for concurrent use.
type Provider interface {
	// GetName is the provider's name in object specs: aws, azure, gcp.
	GetName() string
	// GetTarget resolves the options for this provider. It does no I/O; GetToken calls it every time and reuses options
	// afterwards. It refuses options that the provider does not support, endpoints that are not its own, and options that it
	// cannot resolve.
	GetTarget(options *Options) (Target, error)
	// GetIdentity is the cloud identity that account asks for (a role ARN for AWS), in canonical form, from its
	// attributes. It does no I/O; GetToken calls it every time.
	GetIdentity(account Account) (string, error)
	// GetAudience is the receiver that the proof must name. It may ask the cloud's metadata service.
	GetAudience(ctx context.Context, request *Request) (string, error)
	// NewTokenForServiceAccount exchanges the proof of the request's subject, of whatever kind, at the security token
	// service.
	NewTokenForServiceAccount(ctx context.Context, proof Proof, request *Request) (Token, error)
}

// ControllerProvider is a [Provider] that can find the identity of the program it runs in.
type ControllerProvider interface {
	Provider
	// NewControllerToken gets a token from the program's environment.
	NewControllerToken(ctx context.Context, request *Request) (Token, error)
}

// RegistryProvider is a [Provider] whose tokens can be exchanged for registry credentials.
type RegistryProvider interface {
	Provider
	// NewRegistryToken exchanges token for credentials to request.ImageRepository.
	NewRegistryToken(ctx context.Context, token Token, request *Request) (*RegistryCredentials, error)
}

// ProofProvider is a [Provider] some of whose tokens cannot outlive the proof they were issued for.
type ProofProvider interface {
	Provider
	// GetProofLifetime is how long the proof of this request must be valid; zero means [ProofLifetime].
	GetProofLifetime(request *Request) time.Duration
}

// Target is the part of a [Key] that comes from the options.
type Target struct {
	// Image is the part of the image repository that decides the credentials; empty when no repository was asked for.
	Image string
	// STSEndpoint is the endpoint in canonical form; empty for the provider's own.
	STSEndpoint string
	// STSRegion is the region of the security token service; empty for providers without regions.
	STSRegion string
}

// Request is one exchange to make.
type Request struct {
	// Key decides which token is issued.
	Key Key
	// Account is the subject as it was read for this exchange; zero for the controller.
	Account Account
	// ImageRepository is where registry credentials will be used; Key.Image is the part of it that decides them.
	ImageRepository string
	// ProxyURL is the HTTP proxy for the calls of this exchange; nil for the provider's own transport.
	ProxyURL *url.URL
}

// Format prints the key for every verb: the proxy's URL may hold a password.
func (r Request) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, r.Key.String()) }

// supports refuses, before anything is done, what the provider has no capability for.
func supports(provider Provider, o *Options) error {
	if o.Subject.Kind() == KindController {
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

func unsupported(provider Provider, what, fix string) error {
	return &Error{
		Stage: StageSubject, Code: CodeOptionUnsupported, Fix: fix,
		Err: fmt.Errorf("provider %s does not support %s", provider.GetName(), what),
	}
}

func observe(observer Observer, provider string, stage Stage, run func() error) error {
	if observer == nil {
		return run()
	}
	start := time.Now()
	err := run()
	outcome := "success"
	if err != nil {
		if outcome = string(CodeOf(err)); outcome == "" {
			outcome = "error"
		}
	}
	observer.ObserveStage(provider, stage, outcome, time.Since(start))
	return err
}
