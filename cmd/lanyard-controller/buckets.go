package main

import (
	"context"
	"errors"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	storage "github.com/lanyard-dev/lanyard/internal/artifact/bucket"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/azblob"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/gcs"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/s3"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// buckets are the services that have buckets, by spec.provider.
func (c clouds) buckets(f flags.Flags) map[string]bucket.Service {
	return map[string]bucket.Service{
		v1alpha1.ProviderGeneric: genericBuckets{c.aws},
		v1alpha1.ProviderAWS:     awsBuckets{provider: c.aws, region: f.AWSRegion, allowed: f.AllowedEndpointHosts},
		v1alpha1.ProviderAzure:   azureBuckets{c.azure},
		v1alpha1.ProviderGCP:     gcpBuckets{c.gcp},
	}
}

// genericBuckets are those of any service that speaks the protocol of Amazon S3. The tenant chooses it: its addresses are the
// dial guard's to judge, and a session that its account got elsewhere is the tenant's own to show.
type genericBuckets struct{ aws *aws.Provider }

// genericRegion is what services without regions sign for.
const genericRegion = "us-east-1"

// Locate implements bucket.Service.
func (genericBuckets) Locate(spec v1alpha1.BucketSpec) (bucket.Place, error) {
	place := bucket.Place{Endpoint: spec.Endpoint, Host: spec.Endpoint, Region: spec.Region}
	if place.Region == "" {
		place.Region = genericRegion
	}
	return place, nil
}

// Open implements bucket.Service.
func (b genericBuckets) Open(_ context.Context, r bucket.Request) (storage.Storage, error) {
	return s3.New(s3.Options{
		Bucket: r.Bucket, Endpoint: r.Endpoint, Region: r.Region, PathStyle: true, Insecure: r.Insecure,
		Credentials: awsCredentials(b.aws, r), Transport: r.Transport,
	})
}

// awsCredentials signs with a session, with a user's keys, or not at all.
func awsCredentials(provider *aws.Provider, r bucket.Request) awssdk.CredentialsProvider {
	switch {
	case r.Mint != nil:
		return aws.NewCredentialsProvider(provider, r.Mint...)
	case r.Keys != nil:
		return credentials.NewStaticCredentialsProvider(r.Keys.Access, r.Keys.Secret.Reveal(), "")
	default:
		return nil
	}
}

// awsBuckets are those of Amazon S3.
type awsBuckets struct {
	provider *aws.Provider
	region   string // the controller's own; empty for none
	allowed  endpoint.Allowed
}

// Locate implements bucket.Service. The host decides the region, and a region that differs is an error: S3 would refuse what is
// signed for another one.
func (b awsBuckets) Locate(spec v1alpha1.BucketSpec) (bucket.Place, error) {
	host, region := spec.Endpoint, spec.Region
	if host == "" {
		if region == "" {
			region = b.region
		}
		if region == "" {
			return bucket.Place{}, &auth.Error{
				Stage: auth.StageExchange, Code: auth.CodeRegionMissing,
				Fix: "set spec.region, or AWS_REGION in the controller's environment",
				Err: errors.New("spec.region: the region of the bucket is not known"),
			}
		}
		r, err := endpoint.ParseAWSRegion(region)
		if err != nil {
			return bucket.Place{}, source.Invalid("spec.region", "", "%w", err)
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
		return bucket.Place{}, source.Invalid("spec.region", "remove it, or name the endpoint of that region", "it is not the region of spec.endpoint")
	}
	if region == "" {
		region = genericRegion // of a listed host
	}
	place := bucket.Place{Endpoint: s.String(), Host: s.BucketHost(spec.BucketName), Region: region, Listed: s.Listed}
	if b.region == "" && spec.STS == nil {
		place.Token = []auth.Option{auth.WithSTSRegion(region)}
	}
	return place, nil
}

// Open implements bucket.Service.
func (b awsBuckets) Open(_ context.Context, r bucket.Request) (storage.Storage, error) {
	return s3.New(s3.Options{
		Bucket: r.Bucket, Endpoint: r.Endpoint, Region: r.Region, PathStyle: r.Host == r.Endpoint,
		Credentials: awsCredentials(b.provider, r), Transport: r.Transport,
	})
}

// azureBuckets are the containers of Azure Blob Storage. A token is good at every storage account that its identity may read,
// whoever it is shown to: it goes to no other host than the cloud's.
type azureBuckets struct{ provider *azure.Provider }

// Locate implements bucket.Service.
func (b azureBuckets) Locate(spec v1alpha1.BucketSpec) (bucket.Place, error) {
	blob, err := b.provider.Cloud().ParseBlobEndpoint("https://" + spec.Endpoint)
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

// gcpBuckets are those of Google Cloud Storage, whose tokens are as good as Azure's.
type gcpBuckets struct{ provider *gcp.Provider }

// gcsReadScope bounds a token to reading buckets. Source: Google Cloud Storage, "OAuth 2.0 scopes".
const gcsReadScope = "https://www.googleapis.com/auth/devstorage.read_only"

// Locate implements bucket.Service.
func (b gcpBuckets) Locate(spec v1alpha1.BucketSpec) (bucket.Place, error) {
	universe := b.provider.Universe().Domain
	host := spec.Endpoint
	if host == "" {
		host = "storage." + universe
	}
	g, err := endpoint.ParseGCS(host)
	switch {
	case err != nil:
		return bucket.Place{}, refused(err)
	case g.Universe != universe:
		return bucket.Place{}, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Fix: "name a host of universe " + universe,
			Err: errors.New("spec.endpoint: it is of another universe than the controller's tokens"),
		}
	}
	return bucket.Place{Endpoint: g.Host, Host: g.Host, Token: []auth.Option{auth.WithScopes(gcsReadScope)}}, nil
}

// Open implements bucket.Service.
func (b gcpBuckets) Open(ctx context.Context, r bucket.Request) (storage.Storage, error) {
	options := gcs.Options{Bucket: r.Bucket, Endpoint: r.Endpoint, Transport: r.Transport}
	if r.Mint != nil {
		options.Tokens = gcp.NewTokenSource(ctx, b.provider, r.Mint...)
	}
	return gcs.New(ctx, options)
}

// refused is an endpoint to which no credential goes, with the fix of package endpoint; spec.endpoint has no scheme.
func refused(err error) error {
	e := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Err: err}
	if parsed, ok := errors.AsType[*endpoint.Error](err); ok {
		e.Fix, e.Err = strings.ReplaceAll(parsed.Fix, "https://", ""), errors.New("spec.endpoint: "+parsed.Detail)
	}
	return e
}
