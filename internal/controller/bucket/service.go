package bucket

import (
	"context"
	"net/http"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
)

// Service is one provider's way to its buckets.
type Service interface {
	// Locate returns where the bucket is, or refuses the endpoint or region. The error is an
	// [*auth.Error] if a credential would go to a host that is not the cloud's. The spec's formats
	// are checked before. It calls nobody.
	Locate(spec v1alpha1.BucketSpec) (Place, error)
	// Open returns the bucket. It makes no request.
	Open(ctx context.Context, request Request) (objectstore.Storage, error)
}

// Place is where a bucket is.
type Place struct {
	// Endpoint is the service's host[:port].
	Endpoint string
	// Host is the host[:port] that requests for the bucket go to, and no others: Endpoint, or the
	// bucket's own.
	Host string
	// Region is the bucket's; empty where the service knows none.
	Region string
	// Listed: the endpoint is in no table of the cloud's, but an administrator lets tenants name
	// it. The controller's own identity is never shown there.
	Listed bool
	// Token returns the options of the token request for the bucket, besides the subject.
	Token []auth.Option
}

// Request is a bucket that is to be opened, with what it takes.
type Request struct {
	Place

	// Bucket is its name.
	Bucket string
	// Insecure allows plain HTTP. Never with Mint.
	Insecure bool
	// Caller is what errors must know of the credential and the way.
	Caller origin.Caller
	// Transport carries the requests.
	Transport http.RoundTripper
	// Mint are the options of auth.GetToken for the credential; nil when it is not minted.
	Mint []auth.Option
	// Keys are the two keys of a user of an S3-compatible service; nil for none.
	Keys *access.Basic
}
