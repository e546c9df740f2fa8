package kinds

import (
	"cmp"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// AWSCluster returns the entry of the kind AWSCluster in the [Table].
func AWSCluster() Kind {
	return Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.AWSClusterKind),
		Plural:           "awsclusters", Short: "lac", Program: IdentityController,
		New:     func() Resource { return &v1alpha1.AWSCluster{} },
		NewList: func() List { return &v1alpha1.AWSClusterList{} },
		Server:  AWS, AddressField: "spec.region",
		Source: of(func(o *v1alpha1.AWSCluster) string { return o.Spec.Region }),
		Region: of(func(o *v1alpha1.AWSCluster) string { return o.Spec.Region }),
		Fields: of(func(o *v1alpha1.AWSCluster) spec.Fields {
			ref := AWSClusterIdentity(o)
			return spec.Fields{Namespace: o.Namespace, Provider: toolkitv1.ProviderAWS, IdentityRef: &ref}
		}),
		IdentityRef: of(func(o *v1alpha1.AWSCluster) *spec.IdentityRef {
			ref := AWSClusterIdentity(o)
			return &ref
		}),
		Success: "Ready",
		Found: of(func(o *v1alpha1.AWSCluster) *Found {
			if o.Status.Identity == nil {
				return &Found{}
			}
			return &Found{CloudIdentity: o.Status.Identity.CloudIdentity}
		}),
	}
}

// AWSClusterIdentity returns the reference of an AWSCluster to its AWS identity. Without
// identityRef, the reference is to the AWSClusterControllerIdentity with the name default. The
// schema has the same default, but an object may be older than the schema's default.
func AWSClusterIdentity(o *v1alpha1.AWSCluster) spec.IdentityRef {
	standard := &spec.IdentityRef{Kind: identityv1.AWSClusterControllerIdentityKind, Name: identityv1.DefaultControllerIdentity}
	return *cmp.Or(refOf(o.Spec.IdentityRef), standard)
}
