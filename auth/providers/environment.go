package providers

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/transport"
)

// NewAWS makes only the provider of AWS, in the same way as [New]. If AWS_CA_BUNDLE is set, its
// certificate authorities replace those of the system, as in the AWS SDKs.
func NewAWS(config Config) (*aws.Provider, error) {
	base := transport.Default()
	if bundle := config.env("AWS_CA_BUNDLE"); bundle != "" {
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
		Region: cmp.Or(config.AWSRegion, config.env("AWS_REGION")), Transport: base,
		AllowedEndpointHosts: config.AllowedEndpointHosts, DenyCIDRs: config.DenyCIDRs,
	})
}

// newAzure makes the provider for the Azure cloud that the environment variables describe.
func newAzure(config Config) (*azure.Provider, error) {
	cloud, err := azureCloud(config)
	if err != nil {
		return nil, err
	}
	return azure.NewProvider(azure.Config{
		TenantID: config.env("AZURE_TENANT_ID"), Cloud: cloud, WholeRegistry: config.AzureWholeRegistry,
		AllowedEndpointHosts: config.AllowedEndpointHosts, DenyCIDRs: config.DenyCIDRs,
	})
}

// azureCloud returns the cloud that the environment variables describe:
//
//   - If AZURE_ENVIRONMENT_FILEPATH is set, it is the cloud in this file. If the file has no
//     authority, AZURE_AUTHORITY_HOST is the authority.
//   - If only AZURE_AUTHORITY_HOST is set, it is the cloud of this authority.
//   - If neither is set, it is the public cloud.
func azureCloud(config Config) (endpoint.AzureCloud, error) {
	file, authority := config.env("AZURE_ENVIRONMENT_FILEPATH"), config.env("AZURE_AUTHORITY_HOST")
	switch {
	case file != "":
		data, err := os.ReadFile(file) //nolint:gosec // the administrator's path
		if err != nil {
			return endpoint.AzureCloud{}, fmt.Errorf("AZURE_ENVIRONMENT_FILEPATH: %w", err)
		}
		cloud, err := endpoint.ParseAzureEnvironment(data, authority)
		if err != nil {
			return endpoint.AzureCloud{}, fmt.Errorf("AZURE_ENVIRONMENT_FILEPATH: %s: %w", file, err)
		}
		return cloud, nil
	case authority != "":
		cloud, err := endpoint.ParseAzureAuthority(authority)
		if err != nil {
			return endpoint.AzureCloud{}, fmt.Errorf("AZURE_AUTHORITY_HOST: %w", err)
		}
		return cloud, nil
	default:
		return endpoint.AzurePublic(), nil
	}
}

// newGCP makes the provider for the universe in GOOGLE_CLOUD_UNIVERSE_DOMAIN, or for the public
// universe if the variable is not set.
func newGCP(config Config) (*gcp.Provider, error) {
	return gcp.NewProvider(gcp.Config{
		UniverseDomain: config.env("GOOGLE_CLOUD_UNIVERSE_DOMAIN"), MetadataHost: config.env("GCE_METADATA_HOST"),
		AllowedEndpointHosts: config.AllowedEndpointHosts, DenyCIDRs: config.DenyCIDRs,
	})
}
