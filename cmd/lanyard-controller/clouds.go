package main

import (
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
)

// clouds are the providers that this program is built with.
type clouds struct {
	aws   *aws.Provider
	azure *azure.Provider
	gcp   *gcp.Provider
}

// newClouds configures them from the flags, and from the variables of the environment that each cloud's own programs read. None
// is asked for anything before an object needs it.
func newClouds(f flags.Flags, env func(string) string) (c clouds, err error) {
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if c.aws, err = newAWS(f, env); err != nil {
		return c, err
	}
	if c.azure, err = newAzure(f, env); err != nil {
		return c, err
	}
	c.gcp, err = gcp.NewProvider(gcp.Config{
		UniverseDomain: env("GOOGLE_CLOUD_UNIVERSE_DOMAIN"), MetadataHost: env("GCE_METADATA_HOST"),
		AllowedEndpointHosts: f.AllowedEndpointHosts, DenyCIDRs: f.DenyCIDRs,
	})
	return c, err
}

// byName are the clouds as objects name them.
func (c clouds) byName() map[string]auth.Provider {
	return map[string]auth.Provider{aws.ProviderName: c.aws, azure.ProviderName: c.azure, gcp.ProviderName: c.gcp}
}

func (c clouds) names() []string { return slices.Sorted(maps.Keys(c.byName())) }

// Close closes idle connections.
func (c clouds) Close() {
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

// newAWS trusts the authorities of AWS_CA_BUNDLE in place of the system's, as the AWS SDKs do.
func newAWS(f flags.Flags, env func(string) string) (*aws.Provider, error) {
	base := transport.Default()
	if bundle := env("AWS_CA_BUNDLE"); bundle != "" {
		pem, err := os.ReadFile(bundle) //nolint:gosec // the administrator's path
		if err != nil {
			return nil, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
		}
		base.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !base.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("AWS_CA_BUNDLE: %s holds no PEM certificate", bundle)
		}
	}
	return aws.NewProvider(aws.Config{
		Region: f.AWSRegion, Transport: base, AllowedEndpointHosts: f.AllowedEndpointHosts, DenyCIDRs: f.DenyCIDRs,
	})
}

// newAzure serves the cloud that AZURE_ENVIRONMENT_FILEPATH describes, else the one that AZURE_AUTHORITY_HOST belongs to, else
// the public one.
func newAzure(f flags.Flags, env func(string) string) (*azure.Provider, error) {
	cloud := endpoint.AzurePublic()
	if file := env("AZURE_ENVIRONMENT_FILEPATH"); file != "" {
		data, err := os.ReadFile(file) //nolint:gosec // the administrator's path
		if err != nil {
			return nil, fmt.Errorf("AZURE_ENVIRONMENT_FILEPATH: %w", err)
		}
		if cloud, err = endpoint.ParseAzureEnvironment(data); err != nil {
			return nil, fmt.Errorf("AZURE_ENVIRONMENT_FILEPATH: %s: %w", file, err)
		}
	} else if authority := env("AZURE_AUTHORITY_HOST"); authority != "" {
		var err error
		if cloud, err = endpoint.ParseAzureAuthority(authority); err != nil {
			return nil, fmt.Errorf("AZURE_AUTHORITY_HOST: %w", err)
		}
	}
	return azure.NewProvider(azure.Config{
		TenantID: env("AZURE_TENANT_ID"), Cloud: cloud, AllowedEndpointHosts: f.AllowedEndpointHosts, DenyCIDRs: f.DenyCIDRs,
	})
}
