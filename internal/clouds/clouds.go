// Package clouds has a buckets.Service for each provider that the controller is built with. A
// service says where its buckets are, and which hosts get a credential.
package clouds

import (
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
)

// Buckets returns the services that have buckets, by spec.provider. At AWS, spec.endpoint may be a
// host of AWS or one of the allowed hosts (--allowed-endpoint-hosts).
func Buckets(clouds *providers.Set, allowed endpoint.Allowed) map[string]buckets.Service {
	return map[string]buckets.Service{
		v1alpha1.ProviderGeneric: genericBuckets{clouds.AWS},
		v1alpha1.ProviderAWS:     awsBuckets{provider: clouds.AWS, allowed: allowed},
		v1alpha1.ProviderAzure:   azureBuckets{clouds.Azure},
		v1alpha1.ProviderGCP:     gcpBuckets{clouds.GCP},
	}
}
