// Package clouds has the buckets of the clouds that the controller is built with: where they are,
// and which hosts get a credential. The reconcilers know it as a map of bucket.Service.
package clouds

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
)

// Buckets returns the services that have buckets, by spec.provider. At AWS, tenants may also name
// the allowed hosts (--allowed-endpoint-hosts).
func Buckets(clouds *providers.Set, allowed endpoint.Allowed) map[string]bucket.Service {
	return map[string]bucket.Service{
		v1alpha1.ProviderGeneric: genericBuckets{clouds.AWS},
		v1alpha1.ProviderAWS:     awsBuckets{provider: clouds.AWS, allowed: allowed},
		v1alpha1.ProviderAzure:   azureBuckets{clouds.Azure},
		v1alpha1.ProviderGCP:     gcpBuckets{clouds.GCP},
	}
}

// refused is an endpoint to which no credential goes, with the fix of package endpoint.
func refused(err error) error {
	e := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeEndpointRefused, Err: err}
	if parsed, ok := errors.AsType[*endpoint.Error](err); ok {
		e.Fix, e.Err = parsed.Fix, errors.New("spec.endpoint: "+parsed.Detail)
	}
	return e
}
