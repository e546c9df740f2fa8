package clouds

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
	storage "github.com/lanyard-dev/lanyard/internal/artifact/bucket"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/s3"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// openAWS trusts the authorities of AWS_CA_BUNDLE in place of the system's, as the AWS SDKs do.
func (c *Clouds) openAWS() (err error) {
	base := transport.Default()
	if bundle := c.config.Env("AWS_CA_BUNDLE"); bundle != "" {
		pem, err := os.ReadFile(bundle) //nolint:gosec // the administrator's path
		if err != nil {
			return fmt.Errorf("AWS_CA_BUNDLE: %w", err)
		}
		base.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !base.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("AWS_CA_BUNDLE: %s holds no PEM certificate", bundle)
		}
	}
	c.aws, err = aws.NewProvider(aws.Config{
		Region: c.config.AWSRegion, Transport: base,
		AllowedEndpointHosts: c.config.AllowedEndpointHosts, DenyCIDRs: c.config.DenyCIDRs,
	})
	return err
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
	named, invalid := endpoint.ParseAWSRegion(region)
	switch {
	case s.Listed: // its regions are its own
	case invalid != nil:
		return bucket.Place{}, source.Invalid("spec.region", "", "%w", invalid)
	case named.Partition.ID != s.Partition:
		return bucket.Place{}, source.Invalid("spec.region", "name a region of that partition, or the endpoint of the region", "it is not of the partition of spec.endpoint")
	}
	place := bucket.Place{Endpoint: s.String(), Host: s.BucketHost(spec.BucketName), Region: region, Listed: s.Listed}
	// The controller's own region serves every bucket of its partition; a session of one partition is nothing in another.
	own, err := endpoint.ParseAWSRegion(b.region)
	if alien := s.Partition != "" && s.Partition != own.Partition.ID; spec.STS == nil && invalid == nil && (err != nil || alien) {
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
