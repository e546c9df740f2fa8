// Package providers makes the providers of all clouds. It is for a program whose objects choose a
// provider by its name:
//
//	clouds, err := providers.New(providers.Config{Env: os.Getenv})
//	provider, err := clouds.ByName(object.Spec.Provider) // aws, azure or gcp
//	token, err := auth.GetToken(ctx, provider, …)
//
// The package links the SDKs of all clouds. A program that needs only one cloud imports that
// cloud's package instead: auth/aws, auth/azure or auth/gcp.
package providers

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
)

// Config configures the providers. The zero value is for the public clouds. Each call to AWS must
// then have a region or an image repository. Each account for Azure must then name an Azure tenant.
type Config struct {
	// Env looks up environment variables, as os.Getenv does; nil for no variables. The providers
	// read the variables that the clouds' own programs read:
	//
	//   - AWS_REGION and AWS_CA_BUNDLE;
	//   - AZURE_TENANT_ID, AZURE_AUTHORITY_HOST and AZURE_ENVIRONMENT_FILEPATH;
	//   - GOOGLE_CLOUD_UNIVERSE_DOMAIN and GCE_METADATA_HOST.
	Env func(name string) string
	// AWSRegion replaces AWS_REGION. Optional.
	AWSRegion string
	// AllowedEndpointHosts are hosts that tenants may use besides the clouds' own. Examples are an
	// STS and a proxy. These hosts may have any address, even a loopback address or the address of
	// a metadata service. The zero value has no hosts.
	AllowedEndpointHosts endpoint.Allowed
	// AzureWholeRegistry is the value of azure.Config.WholeRegistry.
	AzureWholeRegistry bool
	// DenyCIDRs are networks in which tenants' hosts and proxies must not be. The zero value means
	// the private ranges (endpoint.PrivateCIDRs).
	DenyCIDRs endpoint.CIDRs
}

// env returns the value of an environment variable, or an empty string if the variable is not set.
func (c *Config) env(name string) string {
	if c.Env == nil {
		return ""
	}
	return c.Env(name)
}

// Set has one provider for each cloud. Make it with [New]. It is safe for concurrent use.
type Set struct {
	// AWS is the provider named aws.
	AWS *aws.Provider
	// Azure is the provider named azure.
	Azure *azure.Provider
	// GCP is the provider named gcp.
	GCP *gcp.Provider
}

// New makes the providers. It sends no request to any cloud. Its error names the invalid
// environment variable.
func New(config Config) (*Set, error) {
	amazon, err := NewAWS(config)
	if err != nil {
		return nil, err
	}
	entra, err := newAzure(config)
	if err != nil {
		return nil, err
	}
	google, err := newGCP(config)
	if err != nil {
		return nil, err
	}
	return &Set{AWS: amazon, Azure: entra, GCP: google}, nil
}

// ByName returns the provider with this name, which is usually spec.provider of an object. There is
// no default: an empty or unknown name is an [*auth.Error] with the code [auth.CodeOptionInvalid].
func (s *Set) ByName(name string) (auth.Provider, error) {
	for _, provider := range s.all() {
		if provider.GetName() == name {
			return provider, nil
		}
	}
	return nil, &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeOptionInvalid,
		Fix: "name one of " + strings.Join(s.Names(), ", "),
		Err: fmt.Errorf("there is no provider %.80q", name),
	}
}

// Names returns the names that [Set.ByName] accepts, in alphabetical order.
func (s *Set) Names() []string {
	var names []string
	for _, provider := range s.all() {
		names = append(names, provider.GetName())
	}
	return names
}

// Close closes idle connections.
func (s *Set) Close() {
	s.AWS.Close()
	s.Azure.Close()
	s.GCP.Close()
}

// all returns the providers in the alphabetical order of their names.
func (s *Set) all() []auth.Provider { return []auth.Provider{s.AWS, s.Azure, s.GCP} }
