// Package location locates the buckets of clouds. It returns the host of a bucket, and the options
// for requesting a token for the bucket. It does not open buckets, and imports none of the clients
// that do. So the command line, which needs only the location, is linked without these clients.
package location

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
)

func invalid(field, fix, message string) error {
	return &buckets.InvalidError{Field: field, Fix: fix, Err: errors.New(message)}
}

// Of locates the bucket of a spec with the provider that the spec names. At AWS, spec.endpoint may
// be a host of AWS or one of the allowed hosts.
func Of(clouds *providers.Set, allowed endpoint.Allowed, spec v1alpha1.BucketSpec) (buckets.Place, error) {
	switch spec.Provider {
	case v1alpha1.ProviderAWS:
		return AWS(clouds.AWS, allowed, spec)
	case v1alpha1.ProviderAzure:
		return Azure(clouds.Azure, spec)
	case v1alpha1.ProviderGCP:
		return GCP(clouds.GCP, spec)
	default:
		return Generic(spec), nil
	}
}

// genericRegion is the region in signatures for services without regions.
const genericRegion = "us-east-1"

// Generic locates a bucket of any service that speaks the protocol of Amazon S3.
func Generic(spec v1alpha1.BucketSpec) buckets.Place {
	return buckets.Place{Endpoint: spec.Endpoint, Host: spec.Endpoint, Region: cmp.Or(spec.Region, genericRegion)}
}

// AWS locates a bucket of Amazon S3. The host in spec.endpoint decides the region. A different
// spec.region is an error: S3 would refuse a request that is signed for another region. Without
// spec.endpoint and spec.region, the bucket is in provider.Region(), the controller's own region.
func AWS(provider *aws.Provider, allowed endpoint.Allowed, spec v1alpha1.BucketSpec) (buckets.Place, error) {
	host, region := spec.Endpoint, spec.Region
	if host == "" {
		if region = cmp.Or(region, provider.Region().Name); region == "" {
			return buckets.Place{}, &auth.Error{
				Stage: auth.StageExchange, Code: auth.CodeRegionMissing,
				Fix: "set spec.region, or AWS_REGION in the controller's environment",
				Err: errors.New("spec.region: the region of the bucket is unknown"),
			}
		}
		r, err := endpoint.ParseAWSRegion(region)
		if err != nil {
			return buckets.Place{}, &buckets.InvalidError{Field: "spec.region", Err: err}
		}
		host = r.S3Host(endpoint.Variant{})
	}
	s, err := allowed.ParseS3(host)
	if err != nil {
		return buckets.Place{}, refused(err)
	}
	if region != "" && s.Region != "" && !s.Global && s.Region != region {
		return buckets.Place{}, invalid("spec.region",
			"remove it, or name the endpoint of that region", "it is not the region of spec.endpoint")
	}
	region = cmp.Or(region, s.Region, genericRegion) // the host may have no region
	named, unknown := endpoint.ParseAWSRegion(region)
	switch {
	case s.Listed: // an allowed host outside AWS may have its own regions
	case unknown != nil:
		return buckets.Place{}, &buckets.InvalidError{Field: "spec.region", Err: unknown}
	case named.Partition.ID != s.Partition:
		return buckets.Place{}, invalid("spec.region", "name a region of that partition, or the endpoint of the region",
			"it is not of the partition of spec.endpoint")
	}
	place := buckets.Place{Endpoint: s.String(), Host: s.BucketHost(spec.BucketName), Region: region, Listed: s.Listed}
	// A session from the controller's own region is valid in all regions of its partition, and in
	// no other partition. So a bucket of another partition gets a session from the bucket's region.
	own := provider.Region()
	if alien := s.Partition != "" && s.Partition != own.Partition.ID; spec.STS == nil && unknown == nil && (own.Name == "" || alien) {
		place.Token = []auth.Option{auth.WithSTSRegion(region)}
	}
	return place, nil
}

// Azure locates a container of Azure Blob Storage. A host that receives a token could use it at
// every storage account that the token's identity may read. So the token is sent only to the
// cloud's own hosts.
func Azure(provider *azure.Provider, spec v1alpha1.BucketSpec) (buckets.Place, error) {
	blob, err := provider.Cloud().ParseBlobEndpoint(buckets.Host(spec))
	if err != nil {
		return buckets.Place{}, refused(err)
	}
	return buckets.Place{
		Endpoint: blob.Host, Host: blob.Host, Token: []auth.Option{auth.WithScopes(azure.BlobScope(provider.Cloud()))},
	}, nil
}

// gcsReadScope is the scope of a token that may only read buckets. Source: Google Cloud Storage,
// "OAuth 2.0 scopes".
const gcsReadScope = "https://www.googleapis.com/auth/devstorage.read_only"

// GCP locates a bucket of Google Cloud Storage. A host that receives a token could use it for every
// bucket that the token's identity may read. So the token is sent only to the cloud's own hosts.
func GCP(provider *gcp.Provider, spec v1alpha1.BucketSpec) (buckets.Place, error) {
	universe := provider.Universe().Domain
	g, err := endpoint.ParseGCS(cmp.Or(spec.Endpoint, "storage."+universe))
	switch {
	case err != nil:
		return buckets.Place{}, refused(err)
	case g.Universe != universe:
		return buckets.Place{}, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Fix: "name a host in universe " + universe,
			Err: errors.New("spec.endpoint is in another universe than the controller's tokens"),
		}
	}
	return buckets.Place{Endpoint: g.Host, Host: g.Host, Token: []auth.Option{auth.WithScopes(gcsReadScope)}}, nil
}

// refused returns the error for a spec.endpoint that gets no credential. The error has the fix from
// the *endpoint.Error in err.
func refused(err error) error {
	e := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Err: err}
	if parsed, ok := errors.AsType[*endpoint.Error](err); ok {
		e.Fix, e.Err = parsed.Fix, fmt.Errorf("spec.endpoint: %s", parsed.Detail)
	}
	return e
}
