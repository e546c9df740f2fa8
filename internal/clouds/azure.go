package clouds

import (
	"context"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/azblob"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/clouds/location"
)

// azureBuckets implements buckets.Service for Azure Blob Storage, whose buckets are containers.
type azureBuckets struct{ provider *azure.Provider }

// Locate implements buckets.Service.
func (b azureBuckets) Locate(spec v1alpha1.BucketSpec) (buckets.Place, error) {
	return location.Azure(b.provider, spec)
}

// Open implements buckets.Service.
func (b azureBuckets) Open(_ context.Context, r buckets.Request) (objectstore.Storage, error) {
	options := azblob.Options{
		Container: r.Bucket, Endpoint: r.Endpoint, Audience: b.provider.Cloud().StorageAudience, Transport: r.Transport, Caller: r.Caller,
	}
	if r.Mint != nil {
		options.Credential = azure.NewTokenCredential(b.provider, r.Mint...)
	}
	return azblob.New(options)
}
