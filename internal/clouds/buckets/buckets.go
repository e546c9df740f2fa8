// Package buckets has the interface through which a reconciler uses a service that has buckets.
// Package clouds has the services; this package links no cloud's SDK.
package buckets

import (
	"context"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// Service locates and opens the buckets of one provider.
type Service interface {
	// Locate returns where the bucket is, or refuses the endpoint or region. The caller must have
	// checked the formats of the spec's fields. Locate makes no request.
	//
	// The error is an [*auth.Error] if the endpoint must not get a credential. It is also an
	// [*auth.Error] if the region is not known: the spec names no endpoint and no region, and the
	// controller has no region. Any other error is an [*InvalidError].
	Locate(spec v1alpha1.BucketSpec) (Place, error)
	// Open returns the bucket. It makes no request.
	Open(ctx context.Context, request Request) (objectstore.Storage, error)
}

// Place is where a bucket is.
type Place struct {
	// Endpoint is the service's host[:port].
	Endpoint string
	// Host is the only host[:port] that gets requests for the bucket: Endpoint, or a host name of
	// the bucket's own.
	Host string
	// Region is the bucket's region; empty for a service without regions.
	Region string
	// Listed is true if the endpoint is an allowed host outside the cloud. An administrator allows
	// hosts with --allowed-endpoint-hosts. The controller's own credential is never sent to such a
	// host.
	Listed bool
	// Token has the options of the token request for the bucket, besides the subject.
	Token []auth.Option
}

// Request describes a bucket to open.
type Request struct {
	Place

	// Bucket is the name of the bucket.
	Bucket string
	// Insecure allows plain HTTP. It is never set together with Mint.
	Insecure bool
	// Caller describes the credential and the proxy, for error texts.
	Caller origin.Caller
	// Transport carries the requests.
	Transport http.RoundTripper
	// Mint are the options of auth.GetToken for the credential; nil if the credential is not minted.
	Mint []auth.Option
	// Keys are the two keys of a user of an S3-compatible service; nil for none.
	Keys *Keys
}

// Keys are the static credential of a user of an S3-compatible service.
type Keys struct {
	// ID is the access key's ID, which is not secret.
	ID string
	// Secret is the secret key.
	Secret auth.Secret
}

// InvalidError reports that a field of a spec is invalid.
type InvalidError struct {
	// Field is the path of the field; Fix is the next step, and may be empty.
	Field, Fix string
	// Err says what is wrong.
	Err error
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Err.Error() }

func (e *InvalidError) Unwrap() error { return e.Err }

// Host returns the host in spec.endpoint. For Azure, spec.endpoint may also be a URL, as in Flux's
// manifests.
func Host(spec v1alpha1.BucketSpec) string {
	if host, ok := strings.CutPrefix(spec.Endpoint, "https://"); ok && spec.Provider == v1alpha1.ProviderAzure {
		return strings.TrimSuffix(host, "/")
	}
	return spec.Endpoint
}
