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

// DefaultTimeout bounds each attempt at a request when [Config].Timeout says nothing.
const DefaultTimeout = 10 * time.Second

// Config configures a [Provider]. Its zero value works, in the public cloud, for subjects that name their tenant.
type Config struct {
	// TenantID is the Microsoft Entra tenant of subjects that name none, a GUID: the controller's AZURE_TENANT_ID. Optional.
	TenantID string
	// Cloud is the cloud of all calls; zero for the public one. See [endpoint.ParseAzureAuthority] for the controller's
	// AZURE_AUTHORITY_HOST and [endpoint.ParseAzureEnvironment] for the file of its AZURE_ENVIRONMENT_FILEPATH.
	Cloud endpoint.AzureCloud
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

// Provider implements [auth.Provider], [auth.ControllerProvider] and [auth.RegistryProvider]. It is safe for concurrent use.
type Provider struct {
	tenant string
	cloud  endpoint.AzureCloud
	// elsewhere is the authority, unless the cloud is the public one; then it is empty.
	elsewhere string
	calls     *remote.Caller

	// What tenants wrote is parsed on every call, and is rarely new.
	identities *memo.Memo[named, identity]
	images     *memo.Memo[string, image]
	scopes     *memo.Memo[auth.List, string] // each the one in its list
}

// image is an image repository with its text, which is made once.
type image struct {
	endpoint.ACR

	text string
}

// NewProvider makes a provider. It refuses a tenant that is not a GUID, an incomplete cloud, and a transport that does not verify
// certificates.
func NewProvider(config Config) (*Provider, error) {
	if config.TenantID != "" {
		tenant, err := parseGUID(config.TenantID)
		if err != nil {
			return nil, fmt.Errorf("AZURE_TENANT_ID: %w", err)
		}
		config.TenantID = tenant
	}
	if config.Cloud.IsZero() {
		config.Cloud = endpoint.AzurePublic()
	}
	if c := config.Cloud; !strings.HasPrefix(c.Authority, "https://") || c.ProofAudience == "" || c.ResourceManagerAudience == "" || c.RegistryAudience == "" {
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
		tenant: config.TenantID, cloud: config.Cloud, elsewhere: elsewhere, calls: calls,
		identities: memo.New(newIdentity),
		scopes:     memo.New(parseScopes),
		images: memo.New(func(s string) (image, error) {
			acr, err := config.Cloud.ParseACR(s)
			return image{acr, acr.String()}, err
		}),
	}, nil
}

// Close closes idle connections.
func (p *Provider) Close() { p.calls.Close() }

// Cloud is the cloud that the provider serves: its credentials must be given to no other.
func (p *Provider) Cloud() endpoint.AzureCloud { return p.cloud }

// GetName implements [auth.Provider].
func (*Provider) GetName() string { return ProviderName }

// GetTarget implements [auth.Provider]. Image is the registry's host and the repository, since credentials are for one
// repository. STSEndpoint is the authority, unless the cloud is the public one: two clouds' tokens never share a key in a cache.
func (p *Provider) GetTarget(options *auth.Options) (auth.Target, error) {
	switch {
	case options.STSEndpoint != "":
		return auth.Target{}, refusal.Unsupported(ProviderName, "an STS endpoint", "leave out the STS endpoint: the authority of Microsoft Entra is the controller's (AZURE_AUTHORITY_HOST)")
	case options.STSRegion != "":
		return auth.Target{}, refusal.Unsupported(ProviderName, "an STS region", "leave out the STS region: Microsoft Entra has none")
	case options.Subject.Kind() == auth.KindController && options.ProxyURL != nil:
		return auth.Target{}, refusal.Detour("proxy")
	case options.ImageRepository != "" && !options.Scopes.IsZero():
		return auth.Target{}, scopeError("registry credentials have a scope of their own", "leave out the scopes, or the image repository")
	}
	target := auth.Target{STSEndpoint: p.elsewhere}
	if !options.Scopes.IsZero() {
		if _, err := p.oneScope(options.Scopes); err != nil {
			return auth.Target{}, err
		}
	}
	if options.ImageRepository != "" {
		image, err := p.image(options.ImageRepository)
		if err != nil {
			return auth.Target{}, err
		}
		target.Image = image.text
	}
	return target, nil
}

func (p *Provider) image(repository string) (*image, error) {
	image, err := p.images.Parse(repository)
	if err != nil {
		return nil, refusal.Of(auth.StageRegistry, auth.CodeEndpointRefused, "", err)
	}
	if image.Repository == "" {
		return nil, &auth.Error{
			Stage: auth.StageRegistry, Code: auth.CodeOptionInvalid,
			Fix: "name the repository too, as " + image.Host + "/<repository>",
			Err: errors.New("credentials of Azure Container Registry are for one repository, and none is named"),
		}
	}
	return image, nil
}

// GetAudience implements [auth.Provider]: the token exchange audience of the cloud, so that a proof given to one cloud is worth
// nothing in another. A request that no exchange can answer is refused here, before there is a proof.
func (p *Provider) GetAudience(_ context.Context, request *auth.Request) (string, error) {
	if _, err := p.subject(request); err != nil {
		return "", err
	}
	return p.cloud.ProofAudience, nil
}

// subject is the identity of a request.
func (p *Provider) subject(request *auth.Request) (identity, error) {
	id, err := parseIdentity(request.Key.Identity)
	if err != nil {
		n := named{}
		n.tenant, n.client, _ = strings.Cut(request.Key.Identity, "/")
		return identity{}, identityError(request.Key.Subject, n, err)
	}
	return id, nil
}
