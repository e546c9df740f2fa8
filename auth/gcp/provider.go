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

// DefaultScope is the scope of a token if the call names no scope. Every API of Google Cloud
// accepts this scope. The token then permits all that the identity's roles permit. Source: Compute
// Engine, "Service accounts: access scopes".
const DefaultScope = "https://www.googleapis.com/auth/cloud-platform"

// image is the value of [auth.Target].Image for every image repository, because one access token is
// valid at all registries.
const image = "gcp"

// DefaultTimeout bounds each attempt at a request if [Config].Timeout is zero.
const DefaultTimeout = 10 * time.Second

// Config configures a [Provider]. Its zero value is right for the public Google Cloud.
type Config struct {
	// UniverseDomain is the domain of the universe that the provider serves. The controller sets it
	// from GOOGLE_CLOUD_UNIVERSE_DOMAIN. Empty means googleapis.com.
	UniverseDomain string
	// MetadataHost is host[:port] of the metadata server. The controller sets it from
	// GCE_METADATA_HOST. Empty means [DefaultMetadataHost]. Requests to the metadata server use
	// plain HTTP and never the Transport's proxy.
	MetadataHost string
	// Transport has the administrator's proxy and certificate authorities. All connections use
	// copies of this transport. Nil means auth/transport's Default.
	Transport *http.Transport
	// AllowedEndpointHosts is the value of --allowed-endpoint-hosts. It lists tenants' proxies that
	// may have any address: a loopback address, the address of a metadata service, or one in
	// DenyCIDRs.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs are addresses that tenants' proxies must not have: the value of --deny-cidrs. The
	// zero value means the private ranges.
	DenyCIDRs endpoint.CIDRs
	// Timeout bounds each attempt at a request; a request has at most two attempts. Zero means
	// [DefaultTimeout].
	Timeout time.Duration
}

// Provider implements [auth.Provider], [auth.ControllerProvider] and [auth.RegistryProvider]. It is
// safe for concurrent use.
type Provider struct {
	universe endpoint.GCPUniverse
	// elsewhere is the URL of the universe's Security Token Service; empty for the public universe.
	elsewhere string
	calls     *remote.Caller
	metadata  *metadata

	// These memos store parsed input of tenants. Every call needs the parsed form, and the input is
	// rarely new.
	identities *memo.Memo[statement, identity]
	keys       *memo.Memo[string, identity]
	registries *memo.Memo[string, endpoint.Registry]
	scopes     *memo.Memo[auth.List, []string]
}

// NewProvider makes a provider. It refuses an unknown universe, a malformed metadata host, and a
// transport that does not verify certificates.
func NewProvider(config Config) (*Provider, error) {
	universe, err := endpoint.ParseGCPUniverse(cmp.Or(config.UniverseDomain, endpoint.GCPUniverses()[0].Domain))
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
		identities: memo.New(func(said statement) (identity, error) { return parseStatement(said, universe) }),
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

// Universe returns the universe that the provider serves. Never give its tokens to another
// universe.
func (p *Provider) Universe() endpoint.GCPUniverse { return p.universe }

// GetName implements [auth.Provider].
func (*Provider) GetName() string { return ProviderName }

// GetTarget implements [auth.Provider]. The target's Image is "gcp" for every registry of the
// universe, because one access token is valid at all of them. The target's STSEndpoint is the
// universe's Security Token Service, or empty for the public universe. So tokens of two universes
// never share a key.
func (p *Provider) GetTarget(options *auth.Options) (auth.Target, error) {
	switch {
	case options.STSEndpoint != "":
		return auth.Target{}, refusal.Unsupported(ProviderName, "an STS endpoint",
			"leave out the STS endpoint: the controller's GOOGLE_CLOUD_UNIVERSE_DOMAIN sets it")
	case options.STSRegion != "":
		return auth.Target{}, refusal.Unsupported(ProviderName, "an STS region",
			"leave out the STS region: tokens of Google Cloud have no region")
	case options.Subject.Lent() && options.ProxyURL != nil:
		return auth.Target{}, refusal.Detour("proxy")
	}
	if !options.Scopes.IsZero() {
		if _, err := p.scopes.Parse(options.Scopes); err != nil {
			return auth.Target{}, err
		}
	}
	target := auth.Target{STSEndpoint: p.elsewhere, Scopes: options.Scopes}
	if options.ImageRepository != "" {
		if err := p.checkRegistry(options.ImageRepository); err != nil {
			return auth.Target{}, err
		}
		target.Image = image
	}
	return target, nil
}

// checkRegistry refuses an image repository whose host is not a host of Artifact Registry in the
// provider's universe. It reads only the host.
func (p *Provider) checkRegistry(repository string) error {
	host, _, _ := strings.Cut(repository, "/")
	registry, err := p.registries.Parse(host)
	if err != nil {
		return refusal.Of(auth.StageRegistry, auth.CodeEndpointRefused, "", err)
	}
	if registry.Partition != p.universe.Domain {
		return &auth.Error{
			Stage: auth.StageRegistry, Code: auth.CodeEndpointRefused,
			Fix: "name a repository in universe " + p.universe.Domain,
			Err: fmt.Errorf("registry %s is in universe %s, but the controller is in universe %s", registry, registry.Partition, p.universe.Domain),
		}
	}
	return nil
}

// GetProofRequest implements [auth.Provider]. It asks for a JWT:
//
//   - If the identity names a workload identity provider, the JWT is for this provider.
//   - If the identity of a ServiceAccount names no provider, the JWT is for the workload identity
//     pool of the program's GKE cluster. GetProofRequest fails if this cluster is not known.
//
// Any other subject must name a provider; without one, GetProofRequest refuses the request. It also
// refuses an invalid identity or image repository.
//
// If no service account is impersonated, the token expires with the JWT. So the JWT must live for
// tokenLifetime.
func (p *Provider) GetProofRequest(ctx context.Context, request *auth.Request) (auth.ProofRequest, error) {
	x, err := p.plan(ctx, request)
	if err != nil {
		return auth.ProofRequest{}, err
	}
	asked := auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{x.proofAudience}}
	if x.account.Email == "" && len(x.chain) == 0 {
		asked.Lifetime = tokenLifetime
	}
	return asked, nil
}

// plan is a validated exchange: the identity, the cluster and the audiences.
type plan struct {
	identity

	// cluster is the program's GKE cluster, if the proof (the subject's JWT) is for the cluster's
	// workload identity pool. It is zero if the proof is for a workload identity provider.
	cluster endpoint.GKECluster
	// proofAudience is the audience in the proof; audience is the one in requests to the Security
	// Token Service.
	proofAudience, audience string
}

// plan makes the plan of a request, or refuses the request.
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
		x.proofAudience, x.audience = x.identity.audience(), x.provider.FullName()
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
