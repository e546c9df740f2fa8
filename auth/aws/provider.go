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
	// RoleAnnotation is the annotation with the role of a ServiceAccount. Source: Amazon EKS user
	// guide, "IAM roles for service accounts".
	RoleAnnotation = "eks.amazonaws.com/role-arn"
	// RoleField is the providerConfig field in which a WorkloadIdentity names its role.
	RoleField = "iamRoleARN"
	// AssumeRoleAnnotation is the annotation with a second role, such as a role of another account.
	// The ServiceAccount assumes this role with the session of its own role.
	// [endpoint.ParseAssumption] describes the value. The trust policies of both roles must permit
	// this. The [auth.Account] must have a Fingerprint.
	AssumeRoleAnnotation = "lanyard.dev/assume-role"
	// AssumeRoleField is the providerConfig field in which a WorkloadIdentity names a second role.
	// The value has the same format as that of AssumeRoleAnnotation.
	AssumeRoleField = "assumeRole"
)

// publicImage is the [auth.Target].Image of Amazon ECR Public, whose token is valid for all of its
// repositories.
const publicImage = "public.ecr.aws"

// DefaultTimeout limits each attempt at a request if [Config].Timeout is zero.
const DefaultTimeout = 10 * time.Second

// Config configures a [Provider]. Its zero value works for calls that name a region or an image
// repository.
type Config struct {
	// Region is the controller's AWS_REGION. If a call names neither an STS region nor an STS
	// endpoint, it uses STS in this region. If such a call is for a registry in another partition,
	// it uses STS in the registry's region instead. Optional.
	Region string
	// Transport has the administrator's proxy and certificate authorities (AWS_CA_BUNDLE). All
	// connections use copies of it. Nil for auth/transport's Default.
	Transport *http.Transport
	// AllowedEndpointHosts is the value of --allowed-endpoint-hosts. It lists STS hosts outside AWS
	// that tenants may name, and tenants' proxies. These hosts may have any address: a loopback
	// address, the address of a metadata service, or one in DenyCIDRs.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs is the value of --deny-cidrs. Hosts and proxies that tenants name must not have
	// these addresses. The zero value means the private ranges (endpoint.PrivateCIDRs).
	DenyCIDRs endpoint.CIDRs
	// Timeout bounds each attempt at a request; a request has at most two attempts. Zero for
	// [DefaultTimeout].
	Timeout time.Duration
}

// Provider implements [auth.Provider], [auth.ControllerProvider] and [auth.RegistryProvider]. It is
// safe for concurrent use.
type Provider struct {
	region  endpoint.AWSRegion // [Config].Region; zero for none
	calls   *remote.Caller
	budgets budgets

	// Every call parses text of tenants. A memo remembers the results, because the input is rarely
	// new.
	roles       *memo.Memo[string, role]
	assumptions *memo.Memo[string, endpoint.Assumption]
	regions     *memo.Memo[string, endpoint.AWSRegion]
	registries  *memo.Memo[string, ecrRegistry]
	endpoints   *memo.Memo[string, stsEndpoint]
}

// stsEndpoint is an STS endpoint with its canonical URL.
type stsEndpoint struct {
	endpoint.STS

	url string
}

// ecrRegistry is a registry and the value of [auth.Target].Image for it. This value is part of a
// credential's key in the cache. So registries with the same value share their credentials.
type ecrRegistry struct {
	endpoint.Registry

	image string
}

// parseRegistry returns the registry of a host.
func parseRegistry(host string) (ecrRegistry, error) {
	r, err := endpoint.ParseECR(host)
	image := r.Region
	if r.Public {
		image = publicImage
	}
	// FIPS and dual-stack hosts have their own APIs, which can fail while the ordinary API works.
	// So their tokens are cached separately.
	if r.FIPS {
		image += "+fips"
	}
	if r.DualStack {
		image += "+dual-stack"
	}
	return ecrRegistry{r, image}, err
}

// NewProvider makes a provider. It refuses an invalid region or timeout, and a transport that does
// not verify certificates.
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
		roles:       memo.New(parseRole),
		assumptions: memo.New(endpoint.ParseAssumption),
		regions:     memo.New(endpoint.ParseAWSRegion),
		registries:  memo.New(parseRegistry),
		endpoints: memo.New(func(s string) (stsEndpoint, error) {
			sts, err := config.AllowedEndpointHosts.ParseSTS(s)
			return stsEndpoint{sts, sts.URL()}, err
		}),
	}, nil
}

// Close closes idle connections.
func (p *Provider) Close() { p.calls.Close() }

// Region returns the region of [Config]; zero for none.
func (p *Provider) Region() endpoint.AWSRegion { return p.region }

// GetName implements [auth.Provider].
func (*Provider) GetName() string { return ProviderName }

// GetTarget implements [auth.Provider]. The target's Image is the registry's region, because one
// credential serves all registries of this region that the role may use. For Amazon ECR Public,
// Image is public.ecr.aws. Image also contains "+fips" for a FIPS host, and "+dual-stack" for a
// dual-stack host.
func (p *Provider) GetTarget(options *auth.Options) (auth.Target, error) {
	if !options.Scopes.IsZero() {
		return auth.Target{}, refusal.Unsupported(ProviderName, "scopes",
			"leave out the scopes, and bound the token by the role's permission policy")
	}
	if options.Subject.Lent() {
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

// stsRegion returns the region of STS. For an endpoint of [Config].AllowedEndpointHosts, it is the
// region of the call (option), which may be empty. Otherwise it is the first of these that is
// known:
//
//   - the region of the call
//   - the region of the endpoint
//   - the controller's region (AWS_REGION), unless the registry is in another partition
//   - the region of the registry
//
// STS in one partition does not know the roles of another. So the controller's region cannot serve
// a registry of another partition.
func (p *Provider) stsRegion(option string, sts endpoint.STS, registry endpoint.Registry) (string, error) {
	if option != "" && sts.Region != "" && !sts.Global && option != sts.Region {
		return "", &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeOptionInvalid,
			Fix: "leave out the STS region, or name the endpoint of that region",
			Err: fmt.Errorf("the STS endpoint is in region %s, but the call asks for region %s", sts.Region, option),
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

// GetProofRequest implements [auth.Provider]. It refuses a request that AWS would refuse with any
// proof. Otherwise it asks for the first of these that applies:
//
//   - the source session, if the account names one
//   - a JWT for the endpoint's host, if [Config].AllowedEndpointHosts lists this host; the host
//     cannot use the JWT at AWS, because AWS refuses its audience
//   - a JWT for the audiences that the account names
//   - a JWT for sts.amazonaws.com, in all partitions
func (p *Provider) GetProofRequest(_ context.Context, request *auth.Request) (auth.ProofRequest, error) {
	x, err := p.plan(request)
	switch {
	case err != nil:
		return auth.ProofRequest{}, err
	case x.session.Source != "":
		return auth.ProofRequest{Form: auth.FormToken, STSRegion: request.Key.STSRegion}, nil
	case len(x.session.Audiences) > 0 && !x.sts.Listed:
		return auth.ProofRequest{Form: auth.FormJWT, Audiences: x.session.Audiences, Lifetime: x.session.ProofLifetime}, nil
	default:
		return auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{x.sts.Audience()}, Lifetime: x.session.ProofLifetime}, nil
	}
}

// plan describes one exchange. Its parts have been checked against each other.
type plan struct {
	// role is the role to assume; zero for no role. Without a role, the exchange needs a source
	// session (session.Source) or an endpoint of [Config].AllowedEndpointHosts.
	role role
	sts  endpoint.STS
	// url is the URL of the call's own endpoint; empty for the endpoint that the SDK knows.
	url string
	// session has the other parameters of the exchange, such as the session's lifetime. They come
	// from the [auth.Account].
	session SessionRequest
	// The plan of a second exchange, which uses the session of the first; nil for none.
	then *plan
}

// plan makes the plan of a request, or refuses the request.
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
	var err error
	if x.session, err = sessionRequestOf(request.Account); err != nil {
		return plan{}, err
	}
	role, err := p.roleFor(request, x.sts, x.session.Source)
	if err != nil {
		return plan{}, err
	}
	if x.role = role; role.text == "" && x.session.Source != "" {
		return x, nil // no role to check: the token is the source session itself
	}
	// Compare the role's partition with the registry's before the comparison with that of STS. If
	// role and registry differ, only another role helps. The error of the later comparison would
	// also suggest another STS region.
	if request.ImageRepository != "" {
		registry, err := p.registry(request.ImageRepository)
		if err != nil {
			return plan{}, err
		}
		if registry.Partition != role.Partition {
			return plan{}, &auth.Error{
				Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
				Fix: "name a role in partition " + registry.Partition,
				Err: fmt.Errorf("role %s is in partition %s, but registry %s is in partition %s",
					role, role.Partition, registry.Registry, registry.Partition),
			}
		}
	}
	// An STS host outside AWS, which an administrator listed, has no partition to compare.
	if x.sts.Partition != "" && x.sts.Partition != role.Partition {
		return plan{}, &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: fmt.Sprintf("name a role in partition %s, or set the STS region (AWS_REGION of the controller if the call names no region) "+
				"to a region of partition %s",
				x.sts.Partition, role.Partition),
			Err: fmt.Errorf("role %s is in partition %s, but STS region %s is in partition %s", role, role.Partition, x.sts.Region, x.sts.Partition),
		}
	}
	return p.chain(x, request)
}

// registry returns the registry of an image repository. It reads only the host, because the path
// does not change the credentials.
func (p *Provider) registry(repository string) (*ecrRegistry, error) {
	host, _, _ := strings.Cut(repository, "/")
	registry, err := p.registries.Parse(host)
	if err != nil {
		return nil, refusal.Of(auth.StageRegistry, auth.CodeEndpointRefused, "", err)
	}
	return registry, nil
}

// refuseDetour refuses an STS endpoint or a proxy that a tenant chose. It protects subjects that
// are only lent to tenants ([auth.Subject.Lent]).
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
