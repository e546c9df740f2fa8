package clouds

import (
	"context"
	"errors"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/gcs"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
)

// gcpBuckets are the buckets of Google Cloud Storage. As at Azure, a token is valid for every
// bucket that its identity may read.
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
			Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Fix: "name a host in universe " + universe,
			Err: errors.New("spec.endpoint is in another universe than the controller's tokens"),
		}
	}
	return bucket.Place{Endpoint: g.Host, Host: g.Host, Token: []auth.Option{auth.WithScopes(gcsReadScope)}}, nil
}

// Open implements bucket.Service.
func (b gcpBuckets) Open(ctx context.Context, r bucket.Request) (objectstore.Storage, error) {
	options := gcs.Options{Bucket: r.Bucket, Endpoint: r.Endpoint, Transport: r.Transport, Caller: r.Caller}
	if r.Mint != nil {
		options.Tokens = gcp.NewTokenSource(ctx, b.provider, r.Mint...)
	}
	return gcs.New(options)
}
