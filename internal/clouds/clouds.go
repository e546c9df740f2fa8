// Package clouds are the clouds that the controller is built with: how their providers are configured, where their buckets are,
// and which hosts get a credential. The reconcilers know it as maps of auth.Provider and bucket.Service.
package clouds

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
)

// Config is what an administrator says of the clouds.
type Config struct {
	// AWSRegion is the controller's own region; empty for none.
	AWSRegion string
	// AllowedEndpointHosts are hosts outside the clouds' tables that tenants may name: the value of --allowed-endpoint-hosts.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs are addresses that what tenants name must not have: the value of --deny-cidrs.
	DenyCIDRs endpoint.CIDRs
	// Env looks up the variables that each cloud's own programs read, such as AZURE_TENANT_ID; os.Getenv in a program. Required.
	Env func(name string) string
}

// Clouds are the providers and their buckets. They are safe for concurrent use.
type Clouds struct {
	config Config
	aws    *aws.Provider
	azure  *azure.Provider
	gcp    *gcp.Provider
}

// New configures the clouds. None is asked for anything before an object needs it. The error names the variable or flag that is
// wrong.
func New(config Config) (*Clouds, error) {
	c := &Clouds{config: config}
	for _, open := range []func() error{c.openAWS, c.openAzure, c.openGCP} {
		if err := open(); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Providers are the clouds' providers, by the names that objects have for them.
func (c *Clouds) Providers() map[string]auth.Provider {
	return map[string]auth.Provider{aws.ProviderName: c.aws, azure.ProviderName: c.azure, gcp.ProviderName: c.gcp}
}

// Buckets are the services that have buckets, by spec.provider.
func (c *Clouds) Buckets() map[string]bucket.Service {
	return map[string]bucket.Service{
		v1alpha1.ProviderGeneric: genericBuckets{c.aws},
		v1alpha1.ProviderAWS:     awsBuckets{provider: c.aws, region: c.config.AWSRegion, allowed: c.config.AllowedEndpointHosts},
		v1alpha1.ProviderAzure:   azureBuckets{c.azure},
		v1alpha1.ProviderGCP:     gcpBuckets{c.gcp},
	}
}

// Close closes idle connections.
func (c *Clouds) Close() {
	if c.aws != nil {
		c.aws.Close()
	}
	if c.azure != nil {
		c.azure.Close()
	}
	if c.gcp != nil {
		c.gcp.Close()
	}
}

// refused is an endpoint to which no credential goes, with the fix of package endpoint.
func refused(err error) error {
	e := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Err: err}
	if parsed, ok := errors.AsType[*endpoint.Error](err); ok {
		e.Fix, e.Err = parsed.Fix, errors.New("spec.endpoint: "+parsed.Detail)
	}
	return e
}
