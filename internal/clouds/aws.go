package clouds

import (
	"context"
	"errors"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/s3"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// awsBuckets are those of Amazon S3.
type awsBuckets struct {
	provider *aws.Provider // with the controller's own region
	allowed  endpoint.Allowed
}

// Locate implements bucket.Service. The host decides the region. A different spec.region is an
// error: S3 would refuse a request that is signed for another region.
func (b awsBuckets) Locate(spec v1alpha1.BucketSpec) (bucket.Place, error) {
	host, region := spec.Endpoint, spec.Region
	if host == "" {
		if region == "" {
			region = b.provider.Region().Name
		}
		if region == "" {
			return bucket.Place{}, &auth.Error{
				Stage: auth.StageExchange, Code: auth.CodeRegionMissing,
				Fix: "set spec.region, or AWS_REGION in the controller's environment",
				Err: errors.New("spec.region: the region of the bucket is unknown"),
			}
		}
		r, err := endpoint.ParseAWSRegion(region)
		if err != nil {
			return bucket.Place{}, object.Invalid("spec.region", "", "%w", err)
		}
		host = r.S3Host(endpoint.Variant{})
	}
	s, err := b.allowed.ParseS3(host)
	if err != nil {
		return bucket.Place{}, refused(err)
	}
	switch {
	case region == "":
		region = s.Region
	case s.Region != "" && !s.Global && s.Region != region:
		return bucket.Place{}, object.Invalid("spec.region", "remove it, or name the endpoint of that region", "it is not the region of spec.endpoint")
	}
	if region == "" {
		region = genericRegion // of a listed host
	}
	named, invalid := endpoint.ParseAWSRegion(region)
	switch {
	case s.Listed: // its regions are its own
	case invalid != nil:
		return bucket.Place{}, object.Invalid("spec.region", "", "%w", invalid)
	case named.Partition.ID != s.Partition:
		return bucket.Place{}, object.Invalid("spec.region", "name a region of that partition, or the endpoint of the region", "it is not of the partition of spec.endpoint")
	}
	place := bucket.Place{Endpoint: s.String(), Host: s.BucketHost(spec.BucketName), Region: region, Listed: s.Listed}
	// The controller's own region serves every bucket of its partition; a session of one partition
	// is invalid in another.
	own := b.provider.Region()
	if alien := s.Partition != "" && s.Partition != own.Partition.ID; spec.STS == nil && invalid == nil && (own.Name == "" || alien) {
		place.Token = []auth.Option{auth.WithSTSRegion(region)}
	}
	return place, nil
}

// Open implements bucket.Service.
func (b awsBuckets) Open(_ context.Context, r bucket.Request) (objectstore.Storage, error) {
	return s3.New(s3.Options{
		Bucket: r.Bucket, Endpoint: r.Endpoint, Region: r.Region, PathStyle: r.Host == r.Endpoint,
		Credentials: awsCredentials(b.provider, r), Transport: r.Transport, Caller: r.Caller,
	})
}
