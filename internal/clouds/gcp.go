package clouds

import (
	"context"
	"errors"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	storage "github.com/lanyard-dev/lanyard/internal/artifact/bucket"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket/gcs"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
)

// openGCP serves the universe of GOOGLE_CLOUD_UNIVERSE_DOMAIN, else the public one.
func (c *Clouds) openGCP() (err error) {
	c.gcp, err = gcp.NewProvider(gcp.Config{
		UniverseDomain: c.config.Env("GOOGLE_CLOUD_UNIVERSE_DOMAIN"), MetadataHost: c.config.Env("GCE_METADATA_HOST"),
		AllowedEndpointHosts: c.config.AllowedEndpointHosts, DenyCIDRs: c.config.DenyCIDRs,
	})
	return err
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
