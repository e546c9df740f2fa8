package azure

import (
	"cmp"
	"context"
	"errors"
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
const ProviderName = "azure"

// DefaultTimeout limits each attempt at a request if [Config].Timeout is zero.
const DefaultTimeout = 10 * time.Second

// Config configures a [Provider]. Its zero value works for subjects of the public cloud that name
// their tenant.
type Config struct {
	// TenantID is the GUID of the Microsoft Entra tenant for subjects that do not name a tenant.
	// Controllers take it from AZURE_TENANT_ID. Optional.
	TenantID string
	// Cloud is the cloud of all calls; zero for the public cloud. [endpoint.ParseAzureAuthority]
	// reads it from the controller's AZURE_AUTHORITY_HOST, and [endpoint.ParseAzureEnvironment]
	// from the file at its AZURE_ENVIRONMENT_FILEPATH.
	Cloud endpoint.AzureCloud
	// Transport has the administrator's proxy and certificate authorities. All connections use
	// copies of it. Nil for auth/transport's Default.
	Transport *http.Transport
	// AllowedEndpointHosts is the value of --allowed-endpoint-hosts. It lists tenants' proxies that
	// may have any address: a loopback address, the address of a metadata service, or one in
	// DenyCIDRs.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs is the value of --deny-cidrs. Proxies that tenants name must not have these
	// addresses. The zero value means the private ranges.
	DenyCIDRs endpoint.CIDRs
	// WholeRegistry makes registry credentials valid for everything that the identity may do in the
	// registry, including push. "az acr login" does the same. If WholeRegistry is false,
	// credentials can only pull from one repository. Set WholeRegistry only in a program that acts
	// for a single user, such as a command line.
	WholeRegistry bool
	// Timeout bounds each attempt at a request; a request has at most two attempts. Zero for
	// [DefaultTimeout].
	Timeout time.Duration
}

// Provider implements [auth.Provider], [auth.ControllerProvider] and [auth.RegistryProvider]. It is
// safe for concurrent use.
type Provider struct {
	tenant string
	cloud  endpoint.AzureCloud
	// The authority of a cloud other than the public cloud; empty for the public cloud.
	elsewhere string
	calls     *remote.Caller
	whole     bool // Config.WholeRegistry

	// Every call parses text of tenants. A memo remembers the results, because the input is rarely
	// new.
	identities *memo.Memo[statement, identity]
	registries *memo.Memo[string, acrRegistry]
	scopes     *memo.Memo[auth.List, string] // maps a list of scopes to the only scope in it
}

// acrRegistry is a registry and a repository. The field image is their [auth.Target].Image.
type acrRegistry struct {
	endpoint.ACR

	image string
}

// NewProvider makes a provider. It refuses a TenantID that is not a GUID, an incomplete cloud, and
// a transport that does not verify certificates.
func NewProvider(config Config) (*Provider, error) {
	if config.TenantID != "" {
		tenant, err := endpoint.ParseGUID(config.TenantID)
		if err != nil {
			return nil, fmt.Errorf("AZURE_TENANT_ID: %w", err)
		}
		config.TenantID = tenant
	}
	config.Cloud = cmp.Or(config.Cloud, endpoint.AzurePublic())
	if c := config.Cloud; !strings.HasPrefix(c.Authority, "https://") || c.ProofAudience == "" || c.ResourceManagerAudience == "" ||
		c.RegistryAudience == "" {
		return nil, errors.New("the Azure cloud is incomplete; take one of endpoint.AzureClouds or make it with endpoint.ParseAzureEnvironment")
	}
	calls, err := remote.NewCaller(remote.Settings{
		Transport: config.Transport, AllowedEndpointHosts: config.AllowedEndpointHosts, DenyCIDRs: config.DenyCIDRs,
		Timeout: cmp.Or(config.Timeout, DefaultTimeout),
	})
	if err != nil {
		return nil, err
	}
	elsewhere := ""
	if config.Cloud != endpoint.AzurePublic() {
		elsewhere = config.Cloud.Authority
	}
	return &Provider{
		tenant: config.TenantID, cloud: config.Cloud, elsewhere: elsewhere, calls: calls, whole: config.WholeRegistry,
		identities: memo.New(parseStatement),
		scopes:     memo.New(parseScopes),
		registries: memo.New(func(s string) (acrRegistry, error) {
			acr, err := config.Cloud.ParseACR(s)
			if config.WholeRegistry {
				acr.Repository = ""
			}
			return acrRegistry{acr, acr.String()}, err
		}),
	}, nil
}

// Close closes idle connections.
func (p *Provider) Close() { p.calls.Close() }

// Cloud returns the cloud that the provider serves. Never send the provider's tokens to another
// cloud.
func (p *Provider) Cloud() endpoint.AzureCloud { return p.cloud }

// GetName implements [auth.Provider].
func (*Provider) GetName() string { return ProviderName }

// GetTarget implements [auth.Provider]. The target's Image is the registry's host and the
// repository, because credentials are for one repository. The target's STSEndpoint is the cloud's
// authority, so that tokens of two clouds never share a key. STSEndpoint is empty for the public
// cloud.
func (p *Provider) GetTarget(options *auth.Options) (auth.Target, error) {
	switch {
	case options.STSEndpoint != "":
		return auth.Target{}, refusal.Unsupported(ProviderName, "an STS endpoint",
			"leave out the STS endpoint: the controller's AZURE_AUTHORITY_HOST sets the authority of Microsoft Entra")
	case options.STSRegion != "":
		return auth.Target{}, refusal.Unsupported(ProviderName, "an STS region", "leave out the STS region: Microsoft Entra has no regions")
	case options.Subject.Lent() && options.ProxyURL != nil:
		return auth.Target{}, refusal.Detour("proxy")
	case options.ImageRepository != "" && !options.Scopes.IsZero():
		return auth.Target{}, scopeError("registry credentials have their own scope", "leave out the scopes, or the image repository")
	}
	target := auth.Target{STSEndpoint: p.elsewhere, Scopes: options.Scopes}
	if !options.Scopes.IsZero() {
		if _, err := p.oneScope(options.Scopes); err != nil {
			return auth.Target{}, err
		}
	}
	if options.ImageRepository != "" {
		registry, err := p.registry(options.ImageRepository)
		if err != nil {
			return auth.Target{}, err
		}
		target.Image = registry.image
	}
	return target, nil
}

// registry parses the image repository of a call. It refuses a registry without a repository,
// unless [Config].WholeRegistry is set.
func (p *Provider) registry(repository string) (*acrRegistry, error) {
	registry, err := p.registries.Parse(repository)
	if err != nil {
		return nil, refusal.Of(auth.StageRegistry, auth.CodeEndpointRefused, "", err)
	}
	if registry.Repository == "" && !p.whole {
		return nil, &auth.Error{
			Stage: auth.StageRegistry, Code: auth.CodeOptionInvalid,
			Fix: "name the repository too, as " + registry.Host + "/<repository>",
			Err: errors.New("credentials of Azure Container Registry are for one repository, but the call names only a registry"),
		}
	}
	return registry, nil
}

// GetProofRequest implements [auth.Provider]. It asks for a JWT with the cloud's own audience for
// token exchanges. Other clouds do not accept this audience. GetProofRequest refuses a request that
// Entra would refuse with any proof.
func (p *Provider) GetProofRequest(_ context.Context, request *auth.Request) (auth.ProofRequest, error) {
	if _, err := p.plan(request); err != nil {
		return auth.ProofRequest{}, err
	}
	return auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{p.cloud.ProofAudience}}, nil
}

// plan describes one exchange. Its parts have been checked.
type plan struct {
	identity

	// scope is the scope of the token.
	scope string
}

// plan makes the plan of a request, or refuses the request.
func (p *Provider) plan(request *auth.Request) (plan, error) {
	id, err := parseIdentity(request.Key.Identity)
	if err != nil {
		said := statement{}
		said.tenant, said.client, _ = strings.Cut(request.Key.Identity, "/")
		return plan{}, identityError(request.Key.Subject, said, err)
	}
	scope, err := p.scope(request.Key)
	if err != nil {
		return plan{}, err
	}
	return plan{id, scope}, nil
}
