package clouds

import (
	"context"
	"fmt"
	"os"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	storage "github.com/lanyard-dev/lanyard/internal/artifact/bucket"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/azblob"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
)

// openAzure serves the cloud that AZURE_ENVIRONMENT_FILEPATH describes, else the one that AZURE_AUTHORITY_HOST belongs to, else
// the public one.
func (c *Clouds) openAzure() error {
	cloud, err := c.azureCloud()
	if err != nil {
		return err
	}
	c.azure, err = azure.NewProvider(azure.Config{
		TenantID: c.config.Env("AZURE_TENANT_ID"), Cloud: cloud,
		AllowedEndpointHosts: c.config.AllowedEndpointHosts, DenyCIDRs: c.config.DenyCIDRs,
	})
	return err
}

func (c *Clouds) azureCloud() (endpoint.AzureCloud, error) {
	file, authority := c.config.Env("AZURE_ENVIRONMENT_FILEPATH"), c.config.Env("AZURE_AUTHORITY_HOST")
	switch {
	case file != "":
		data, err := os.ReadFile(file) //nolint:gosec // the administrator's path
		if err != nil {
			return endpoint.AzureCloud{}, fmt.Errorf("AZURE_ENVIRONMENT_FILEPATH: %w", err)
		}
		cloud, err := endpoint.ParseAzureEnvironment(data)
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

// azureBuckets are the containers of Azure Blob Storage. A token is good at every storage account that its identity may read,
// whoever it is shown to: it goes to no other host than the cloud's.
type azureBuckets struct{ provider *azure.Provider }

// Locate implements bucket.Service.
func (b azureBuckets) Locate(spec v1alpha1.BucketSpec) (bucket.Place, error) {
	blob, err := b.provider.Cloud().ParseBlobEndpoint(spec.Endpoint)
	if err != nil {
		return bucket.Place{}, refused(err)
	}
	return bucket.Place{
		Endpoint: blob.Host, Host: blob.Host, Token: []auth.Option{auth.WithScopes(azure.BlobScope(b.provider.Cloud()))},
	}, nil
}

// Open implements bucket.Service.
func (b azureBuckets) Open(_ context.Context, r bucket.Request) (storage.Storage, error) {
	options := azblob.Options{
		Container: r.Bucket, Endpoint: r.Endpoint, Audience: b.provider.Cloud().StorageAudience, Transport: r.Transport,
	}
	if r.Mint != nil {
		options.Credential = azure.NewTokenCredential(b.provider, r.Mint...)
	}
	return azblob.New(options)
}
