package gcp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/memo"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// ProviderName is the provider's name in object specs and keys.
const ProviderName = "gcp"

// DefaultScope is the scope of tokens when a call names none: all that the roles of the identity allow. It is the one scope that
// every API of Google Cloud takes, and roles are where permissions belong. Source: Compute Engine, "Service accounts: access scopes".
const DefaultScope = "https://www.googleapis.com/auth/cloud-platform"

// image is the [auth.Key].Image of every registry: credentials do not depend on the registry.
const image = "gcp"

// DefaultTimeout bounds each attempt at a request when [Config].Timeout says nothing.
const DefaultTimeout = 10 * time.Second

// Config configures a [Provider]. Its zero value is right for the public Google Cloud.
type Config struct {
	// UniverseDomain is the domain of the universe whose services give the tokens: the controller's GOOGLE_CLOUD_UNIVERSE_DOMAIN. Empty
	// for googleapis.com.
	UniverseDomain string
	// MetadataHost is host[:port] of the metadata server: the controller's GCE_METADATA_HOST. Empty for [DefaultMetadataHost]. It is
	// asked in plain HTTP and directly, whatever proxy the Transport has.
	MetadataHost string
	// Transport has the administrator's proxy and certificate authorities; all connections are made by copies of it. Nil for
	// auth/transport's Default.
	Transport *http.Transport
	// AllowedEndpointHosts are tenants' proxies that may have addresses which are otherwise refused: the value of
	// --allowed-endpoint-hosts.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs are addresses that proxies named by tenants must not have: the value of --deny-cidrs. The zero value stands
	// for the private ranges.
	DenyCIDRs endpoint.CIDRs
	// Timeout bounds each attempt at a request, of which there are at most two; zero for [DefaultTimeout].
	Timeout time.Duration
}

// Provider implements [auth.Provider], [auth.ControllerProvider], [auth.RegistryProvider] and [auth.ProofProvider]. It is safe for
// concurrent use.
type Provider struct {
	universe endpoint.GCPUniverse
	// elsewhere is the Security Token Service's URL, unless the universe is the public one; then it is empty.
	elsewhere string
	calls     *remote.Caller
	metadata  *metadata

	// What tenants wrote is parsed on every call, and is rarely new.
	identities *memo.Memo[claim, identity]
	keys       *memo.Memo[string, identity]
	registries *memo.Memo[string, endpoint.Registry]
	scopes     *memo.Memo[auth.List, []string]
}

// NewProvider makes a provider. It refuses an unknown universe, a malformed metadata host, and a transport that does not verify
// certificates.
func NewProvider(config Config) (*Provider, error) {
	if config.UniverseDomain == "" {
		config.UniverseDomain = endpoint.GCPUniverses()[0].Domain
	}
	universe, err := endpoint.ParseGCPUniverse(config.UniverseDomain)
	if err != nil {
		return nil, fmt.Errorf("GOOGLE_CLOUD_UNIVERSE_DOMAIN: %w", err)
	}
	calls, err := remote.NewCaller(remote.Settings{
		Transport: config.Transport, AllowedEndpointHosts: config.AllowedEndpointHosts, DenyCIDRs: config.DenyCIDRs,
		Timeout: cmp.Or(config.Timeout, DefaultTimeout),
	})
	if err != nil {
		return nil, err
	}
	metadata, err := newMetadata(config.MetadataHost, calls.Timeout())
	if err != nil {
		return nil, err
	}
	elsewhere := ""
	if universe != endpoint.GCPUniverses()[0] {
		elsewhere = "https://" + universe.APIHost("sts")
	}
	return &Provider{
		universe: universe, elsewhere: elsewhere, calls: calls, metadata: metadata,
		identities: memo.New(func(c claim) (identity, error) { return parseClaim(c, universe) }),
		keys:       memo.New(func(s string) (identity, error) { return parseIdentity(s, universe) }),
		registries: memo.New(endpoint.ParseGAR),
		scopes:     memo.New(parseScopes),
	}, nil
}

// Close closes idle connections.
func (p *Provider) Close() {
	p.calls.Close()
	p.metadata.client.CloseIdleConnections()
}

// Universe is the universe that the provider serves: its tokens must be given to no other.
func (p *Provider) Universe() endpoint.GCPUniverse { return p.universe }

// GetName implements [auth.Provider].
func (*Provider) GetName() string { return ProviderName }

// GetTarget implements [auth.Provider]. Image is gcp for each registry of the universe: one access token is good for all of them.
// STSEndpoint is the Security Token Service, unless the universe is the public one: two universes' tokens never share a key in a cache.
func (p *Provider) GetTarget(options *auth.Options) (auth.Target, error) {
	switch {
	case options.STSEndpoint != "":
		return auth.Target{}, refusal.Unsupported(ProviderName, "an STS endpoint", "leave out the STS endpoint: the universe decides it")
	case options.STSRegion != "":
		return auth.Target{}, refusal.Unsupported(ProviderName, "an STS region", "leave out the STS region: Google Cloud's tokens belong to none")
	}
	if options.Subject.Kind() == auth.KindController && options.ProxyURL != nil {
		return auth.Target{}, refusal.Detour("proxy")
	}
	if !options.Scopes.IsZero() {
		if _, err := p.scopes.Parse(options.Scopes); err != nil {
			return auth.Target{}, err
		}
	}
	target := auth.Target{STSEndpoint: p.elsewhere}
	if options.ImageRepository != "" {
		if err := p.checkRegistry(options.ImageRepository); err != nil {
			return auth.Target{}, err
		}
		target.Image = image
	}
	return target, nil
}

// checkRegistry refuses an image repository whose host is not Artifact Registry's in this universe. Only the host decides, so only
// the host is looked at.
func (p *Provider) checkRegistry(repository string) error {
	host, _, _ := strings.Cut(repository, "/")
	registry, err := p.registries.Parse(host)
	if err != nil {
		return refusal.Of(auth.StageRegistry, auth.CodeEndpointRefused, "", err)
	}
	if registry.Partition != p.universe.Domain {
		return &auth.Error{
			Stage: auth.StageRegistry, Code: auth.CodeEndpointRefused,
			Fix: "name a repository of universe " + p.universe.Domain,
			Err: fmt.Errorf("registry %s is of universe %s, the controller of %s", registry, registry.Partition, p.universe.Domain),
		}
	}
	return nil
}

// GetAudience implements [auth.Provider]: the name of the workload identity provider or, without one, of the pool of the GKE cluster
// that the program runs in. A request that no exchange can answer is refused here, before there is a proof.
func (p *Provider) GetAudience(ctx context.Context, request *auth.Request) (string, error) {
	x, err := p.plan(ctx, request)
	if err != nil {
		return "", err
	}
	return x.proofAudience, nil
}

// GetProofLifetime implements [auth.ProofProvider]: a token of the subject itself ends with its proof, so the proof lives as long as
// a token can.
func (p *Provider) GetProofLifetime(request *auth.Request) time.Duration {
	if id, err := p.keys.Parse(request.Key.Identity); err == nil && id.account.Email == "" {
		return tokenLifetime
	}
	return 0
}

// plan is an exchange whose parts fit together.
type plan struct {
	identity

	// cluster is the GKE cluster whose pool takes the proof; zero with a provider.
	cluster endpoint.GKECluster
	// proofAudience is the receiver that the proof names, audience what the Security Token Service calls it.
	proofAudience, audience string
}

func (p *Provider) plan(ctx context.Context, request *auth.Request) (plan, error) {
	subject := request.Key.Subject
	id, err := p.keys.Parse(request.Key.Identity)
	if err != nil {
		return plan{}, refusal.Of(auth.StageIdentity, auth.CodeIdentityInvalid, "the identity of "+subject.String(), err)
	}
	if request.ImageRepository != "" {
		if err := p.checkRegistry(request.ImageRepository); err != nil {
			return plan{}, err
		}
	}
	x := plan{identity: *id}
	if x.hasProvider() {
		x.proofAudience, x.audience = x.provider.Audience(), x.provider.FullName()
		return x, nil
	}
	if subject.Kind() != auth.KindServiceAccount {
		return plan{}, providerMissing(subject)
	}
	if x.cluster, err = p.metadata.gke(ctx, subject); err != nil {
		return plan{}, err
	}
	x.proofAudience, x.audience = p.universe.WorkloadPool(x.cluster.Project), x.cluster.FullName(p.universe)
	return x, nil
}
