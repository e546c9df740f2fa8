package aws

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

const (
	// ProviderName is the provider's name in object specs and keys.
	ProviderName = "aws"
	// RoleAnnotation names the role of a ServiceAccount. Source: Amazon EKS user guide, "IAM roles for service accounts".
	RoleAnnotation = "eks.amazonaws.com/role-arn"
	// RoleField names the role in the providerConfig of a WorkloadIdentity.
	RoleField = "iamRoleARN"
)

// publicImage stands in [auth.Key].Image for Amazon ECR Public, whose one token is good for all of it.
const publicImage = "public.ecr.aws"

// DefaultTimeout bounds each attempt at a request when [Config].Timeout says nothing.
const DefaultTimeout = 10 * time.Second

// Config configures a [Provider]. Its zero value works for calls that name a region or an image repository.
type Config struct {
	// Region is the controller's AWS_REGION: the region of STS for calls that name neither a region nor a registry of another
	// partition. Optional.
	Region string
	// Transport is the transport that all connections are copies of, with the administrator's proxy and certificate authorities
	// (AWS_CA_BUNDLE); nil for auth/transport's Default.
	Transport *http.Transport
	// AllowedEndpointHosts are STS hosts outside AWS that tenants may name, and proxies of theirs whose addresses would otherwise
	// be refused: the value of --allowed-endpoint-hosts.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs are addresses that hosts and proxies named by tenants must not have: the value of --deny-cidrs. The zero value
	// stands for the private ranges (endpoint.PrivateCIDRs).
	DenyCIDRs endpoint.CIDRs
	// Timeout bounds each attempt at a request, of which there are at most two; zero for [DefaultTimeout].
	Timeout time.Duration
}

// Provider implements [auth.Provider], [auth.ControllerProvider] and [auth.RegistryProvider]. It is safe for concurrent use.
type Provider struct {
	region endpoint.AWSRegion // the controller's own; zero for none
	calls  *remote.Caller

	// What tenants write is parsed on every call and seldom new.
	roles      *memo.Memo[string, role]
	regions    *memo.Memo[string, endpoint.AWSRegion]
	registries *memo.Memo[string, ecrRegistry]
	endpoints  *memo.Memo[string, stsEndpoint]
}

// stsEndpoint is an endpoint with its canonical URL, which is made once.
type stsEndpoint struct {
	endpoint.STS

	url string
}

// ecrRegistry is a registry with the part of it that decides its credentials, which is made once.
type ecrRegistry struct {
	endpoint.Registry

	image string
}

func newRegistry(host string) (ecrRegistry, error) {
	r, err := endpoint.ParseECR(host)
	image := r.Region
	if r.Public {
		image = publicImage
	}
	// Each variant has an API of its own, which can fail where the others do not.
	if r.FIPS {
		image += "+fips"
	}
	if r.DualStack {
		image += "+dual-stack"
	}
	return ecrRegistry{r, image}, err
}

// NewProvider refuses an invalid region or timeout, and a transport that does not verify certificates.
func NewProvider(config Config) (*Provider, error) {
	var region endpoint.AWSRegion
	if config.Region != "" {
		var err error
		if region, err = endpoint.ParseAWSRegion(config.Region); err != nil {
			return nil, fmt.Errorf("AWS_REGION: %w", err)
		}
	}
	calls, err := remote.NewCaller(remote.Settings{
		Transport: config.Transport, AllowedEndpointHosts: config.AllowedEndpointHosts, DenyCIDRs: config.DenyCIDRs,
		Timeout: cmp.Or(config.Timeout, DefaultTimeout),
	})
	if err != nil {
		return nil, err
	}
	return &Provider{
		region: region, calls: calls,
		roles:      memo.New(parseRole),
		regions:    memo.New(endpoint.ParseAWSRegion),
		registries: memo.New(newRegistry),
		endpoints: memo.New(func(s string) (stsEndpoint, error) {
			sts, err := config.AllowedEndpointHosts.ParseSTS(s)
			return stsEndpoint{sts, sts.URL()}, err
		}),
	}, nil
}

// Close closes idle connections.
func (p *Provider) Close() { p.calls.Close() }

// GetName implements [auth.Provider].
func (*Provider) GetName() string { return ProviderName }

// GetTarget implements [auth.Provider]. Image is the registry's region, or public.ecr.aws for Amazon ECR Public, because
// one credential serves all registries of a region that the role may use. "+fips" and "+dual-stack" are added where it comes
// from the region's other APIs.
func (p *Provider) GetTarget(options *auth.Options) (auth.Target, error) {
	if !options.Scopes.IsZero() {
		return auth.Target{}, refusal.Unsupported(ProviderName, "scopes", "leave out the scopes, and bound the token by the role's permission policy")
	}
	if options.Subject.Kind() == auth.KindController {
		if err := refuseDetour(options.STSEndpoint != "", options.ProxyURL != nil); err != nil {
			return auth.Target{}, err
		}
	}
	if options.STSRegion != "" {
		if _, err := p.regions.Parse(options.STSRegion); err != nil {
			return auth.Target{}, refusal.Of(auth.StageExchange, auth.CodeOptionInvalid, "STS region", err)
		}
	}
	var (
		sts      stsEndpoint
		registry ecrRegistry
	)
	if options.STSEndpoint != "" {
		known, err := p.endpoints.Parse(options.STSEndpoint)
		if err != nil {
			return auth.Target{}, refusal.Of(auth.StageExchange, auth.CodeEndpointRefused, "", err)
		}
		sts = *known
	}
	if options.ImageRepository != "" {
		known, err := p.registry(options.ImageRepository)
		if err != nil {
			return auth.Target{}, err
		}
		registry = *known
	}
	region, err := p.stsRegion(options.STSRegion, sts.STS, registry.Registry)
	if err != nil {
		return auth.Target{}, err
	}
	return auth.Target{Image: registry.image, STSEndpoint: sts.url, STSRegion: region}, nil
}

// stsRegion is the region of STS, the first that is known: that of the call (option), of the endpoint, of the controller (AWS_REGION),
// of the registry. The controller's counts only within the registry's partition: a role of one partition is unknown to STS in
// another. A listed endpoint has no region but the call's.
func (p *Provider) stsRegion(option string, sts endpoint.STS, registry endpoint.Registry) (string, error) {
	if option != "" && sts.Region != "" && !sts.Global && option != sts.Region {
		return "", &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeOptionInvalid,
			Fix: "leave out the STS region, or name the endpoint of that region",
			Err: fmt.Errorf("the STS endpoint is in region %s, the call asks for %s", sts.Region, option),
		}
	}
	if sts.Listed {
		return option, nil
	}
	own := p.region.Name
	if registry.Partition != "" && registry.Partition != p.region.Partition.ID {
		own = ""
	}
	region := cmp.Or(option, sts.Region, own, registry.Region)
	if region == "" {
		return "", &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeRegionMissing,
			Fix: "set AWS_REGION in the controller's environment, or name the STS region in the call",
			Err: errors.New("the region of AWS STS is not known"),
		}
	}
	return region, nil
}

// GetAudience implements [auth.Provider]: sts.amazonaws.com for AWS's own hosts in all partitions, else the listed host, so
// that a proof given to it is worth nothing at AWS. A request that no exchange can answer is refused here, before there is a
// proof.
func (p *Provider) GetAudience(_ context.Context, request *auth.Request) (string, error) {
	x, err := p.plan(request)
	if err != nil {
		return "", err
	}
	return x.sts.Audience(), nil
}

// plan is an exchange whose parts are known to fit.
type plan struct {
	// role is the identity; zero for none, which a listed endpoint may take.
	role role
	sts  endpoint.STS
	// url is the endpoint's; empty for that which the SDK knows.
	url string
}

func (p *Provider) plan(request *auth.Request) (plan, error) {
	x := plan{sts: endpoint.STS{Provider: endpoint.AWS}}
	if request.Key.STSEndpoint != "" {
		sts, err := p.endpoints.Parse(request.Key.STSEndpoint)
		if err != nil {
			return plan{}, refusal.Of(auth.StageExchange, auth.CodeEndpointRefused, "", err)
		}
		x.sts, x.url = sts.STS, sts.url
	} else {
		region, err := p.regions.Parse(request.Key.STSRegion)
		if err != nil {
			return plan{}, refusal.Of(auth.StageExchange, auth.CodeOptionInvalid, "STS region", err)
		}
		x.sts.Region, x.sts.Partition = region.Name, region.Partition.ID
	}
	role, err := p.roleFor(request, x.sts)
	if err != nil {
		return plan{}, err
	}
	x.role = role
	// The registry comes first: by default it decides the region, and no other would help.
	if request.ImageRepository != "" {
		registry, err := p.registry(request.ImageRepository)
		if err != nil {
			return plan{}, err
		}
		if registry.Partition != role.Partition {
			return plan{}, &auth.Error{
				Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
				Fix: "name a role of partition " + registry.Partition,
				Err: fmt.Errorf("role %s is of partition %s, registry %s of partition %s", role, role.Partition, registry.Registry, registry.Partition),
			}
		}
	}
	// A listed host is of no partition that we know.
	if x.sts.Partition != "" && x.sts.Partition != role.Partition {
		return plan{}, &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: fmt.Sprintf("name a role of partition %s, or set the STS region (AWS_REGION of the controller where the call names none) to one of partition %s",
				x.sts.Partition, role.Partition),
			Err: fmt.Errorf("role %s is of partition %s, STS region %s of partition %s", role, role.Partition, x.sts.Region, x.sts.Partition),
		}
	}
	return x, nil
}

// registry is the registry of an image repository. Only the host decides, so only the host is looked at.
func (p *Provider) registry(repository string) (*ecrRegistry, error) {
	host, _, _ := strings.Cut(repository, "/")
	registry, err := p.registries.Parse(host)
	if err != nil {
		return nil, refusal.Of(auth.StageRegistry, auth.CodeEndpointRefused, "", err)
	}
	return registry, nil
}

// refuseDetour keeps the controller's own identity off ways that a tenant chose.
func refuseDetour(endpointChosen, proxyChosen bool) error {
	switch {
	case endpointChosen:
		return refusal.Detour("STS endpoint")
	case proxyChosen:
		return refusal.Detour("proxy")
	default:
		return nil
	}
}
