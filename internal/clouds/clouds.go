// Package clouds has the buckets of the clouds that the controller is built with: where they are,
// and which hosts get a credential. The reconcilers know it as a map of bucket.Service.
package clouds

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/internal/clouds/location"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
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

// placed returns a place as the reconcilers know it.
func placed(place location.Place, err error) (bucket.Place, error) {
	if invalid, ok := errors.AsType[*location.InvalidError](err); ok {
		err = object.Invalid(invalid.Field, invalid.Fix, "%w", invalid.Err)
	}
	return bucket.Place(place), err
}
