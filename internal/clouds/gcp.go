package clouds

import (
	"context"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/gcs"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/clouds/location"
)

// gcpBuckets implements buckets.Service for Google Cloud Storage.
type gcpBuckets struct{ provider *gcp.Provider }

// Locate implements buckets.Service.
func (b gcpBuckets) Locate(spec v1alpha1.BucketSpec) (buckets.Place, error) {
	return location.GCP(b.provider, spec)
}

// Open implements buckets.Service.
func (b gcpBuckets) Open(ctx context.Context, r buckets.Request) (objectstore.Storage, error) {
	options := gcs.Options{Bucket: r.Bucket, Endpoint: r.Endpoint, Transport: r.Transport, Caller: r.Caller}
	if r.Mint != nil {
		options.Tokens = gcp.NewTokenSource(ctx, b.provider, r.Mint...)
	}
	return gcs.New(options)
}
