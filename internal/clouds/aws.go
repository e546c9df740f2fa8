package clouds

import (
	"context"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/s3"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/clouds/location"
)

// awsBuckets implements buckets.Service for Amazon S3.
type awsBuckets struct {
	provider *aws.Provider // its region is the controller's own
	allowed  endpoint.Allowed
}

// Locate implements buckets.Service.
func (b awsBuckets) Locate(spec v1alpha1.BucketSpec) (buckets.Place, error) {
	return location.AWS(b.provider, b.allowed, spec)
}

// Open implements buckets.Service.
func (b awsBuckets) Open(_ context.Context, r buckets.Request) (objectstore.Storage, error) {
	return s3.New(s3.Options{
		Bucket: r.Bucket, Endpoint: r.Endpoint, Region: r.Region, PathStyle: r.Host == r.Endpoint,
		Credentials: awsCredentials(b.provider, r), Transport: r.Transport, Caller: r.Caller,
	})
}
