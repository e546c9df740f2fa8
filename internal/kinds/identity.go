package kinds

import (
	"strings"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// WorkloadIdentity returns the entry of the kind WorkloadIdentity in the [Table].
func WorkloadIdentity() Kind {
	return Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.WorkloadIdentityKind),
		Plural:           "workloadidentities", Short: "lwi", Program: IdentityController,
		// The first group is Gardener's. The second group is in GEP-26, the design of Gardener's
		// WorkloadIdentity.
		Peers:   []string{"security.gardener.cloud", "authentication.gardener.cloud"},
		New:     func() Resource { return &v1alpha1.WorkloadIdentity{} },
		NewList: func() List { return &v1alpha1.WorkloadIdentityList{} },
	}
}

// WorkloadIdentityBinding returns the entry of the kind WorkloadIdentityBinding in the [Table].
func WorkloadIdentityBinding() Kind {
	return Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.WorkloadIdentityBindingKind),
		Plural:           "workloadidentitybindings", Short: "lwib", Program: IdentityController,
		New:     func() Resource { return &v1alpha1.WorkloadIdentityBinding{} },
		NewList: func() List { return &v1alpha1.WorkloadIdentityBindingList{} },
		Source:  of(func(o *v1alpha1.WorkloadIdentityBinding) string { return "Secret " + o.Spec.Store.SecretRef.Name }),
		IdentityRef: of(func(o *v1alpha1.WorkloadIdentityBinding) *spec.IdentityRef {
			if ref := o.Spec.IdentityRef; ref != nil {
				return &spec.IdentityRef{Kind: ref.Kind, Name: ref.Name}
			}
			return nil
		}),
		WorkloadIdentity: of(func(o *v1alpha1.WorkloadIdentityBinding) string {
			if ref := o.Spec.WorkloadIdentity; ref != nil {
				return ref.Name
			}
			return ""
		}),
		Relation: `object.?spec.?workloadIdentity.?name.orValue('') == identity.metadata.name`,
		Success:  "Delivered",
		Found: of(func(o *v1alpha1.WorkloadIdentityBinding) *Found {
			if o.Status.ExpiresAt == nil {
				return nil
			}
			return &Found{ExpiresAt: o.Status.ExpiresAt}
		}),
	}
}

// KeyRing returns the entry of the kind KeyRing in the [Table]. The token server writes the status
// of KeyRings. A KeyRing does not implement [Object]: its status has conditions, but not the common
// meta.Status.
func KeyRing() Kind {
	return Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.KeyRingKind),
		Plural:           "keyrings", Short: "lkr", Program: TokenServer,
		New:     func() Resource { return &v1alpha1.KeyRing{} },
		NewList: func() List { return &v1alpha1.KeyRingList{} },
	}
}

// AWSServiceAccountIdentity returns the entry of the kind AWSServiceAccountIdentity in the [Table].
func AWSServiceAccountIdentity() Kind {
	return awsIdentity(Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.AWSServiceAccountIdentityKind),
		Plural:           "awsserviceaccountidentities", Short: "lasai",
		New:     func() Resource { return &v1alpha1.AWSServiceAccountIdentity{} },
		NewList: func() List { return &v1alpha1.AWSServiceAccountIdentityList{} },
		Source:  of(func(o *v1alpha1.AWSServiceAccountIdentity) string { return o.Spec.RoleARN }),
	})
}

// AWSClusterControllerIdentity returns the entry of the kind AWSClusterControllerIdentity in the
// [Table].
func AWSClusterControllerIdentity() Kind {
	return awsIdentity(Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.AWSClusterControllerIdentityKind),
		Plural:           "awsclustercontrolleridentities", Short: "lacci", ClusterScoped: true, Peers: []string{"infrastructure.cluster.x-k8s.io"},
		New:     func() Resource { return &v1alpha1.AWSClusterControllerIdentity{} },
		NewList: func() List { return &v1alpha1.AWSClusterControllerIdentityList{} },
	})
}

// AWSClusterRoleIdentity returns the entry of the kind AWSClusterRoleIdentity in the [Table].
func AWSClusterRoleIdentity() Kind {
	return awsIdentity(Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.AWSClusterRoleIdentityKind),
		Plural:           "awsclusterroleidentities", Short: "lacri", ClusterScoped: true, Peers: []string{"infrastructure.cluster.x-k8s.io"},
		New:     func() Resource { return &v1alpha1.AWSClusterRoleIdentity{} },
		NewList: func() List { return &v1alpha1.AWSClusterRoleIdentityList{} },
	})
}

// AWSClusterStaticIdentity returns the entry of the kind AWSClusterStaticIdentity in the [Table].
func AWSClusterStaticIdentity() Kind {
	return awsIdentity(Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.AWSClusterStaticIdentityKind),
		Plural:           "awsclusterstaticidentities", Short: "lacsi", ClusterScoped: true, Peers: []string{"infrastructure.cluster.x-k8s.io"},
		New:     func() Resource { return &v1alpha1.AWSClusterStaticIdentity{} },
		NewList: func() List { return &v1alpha1.AWSClusterStaticIdentityList{} },
	})
}

// lentIdentity is an object of any of the four kinds of AWS identities.
type lentIdentity interface {
	GetIdentityStatus() *v1alpha1.AWSIdentityStatus
}

// awsIdentity adds to a Kind the fields that all kinds of AWS identities have in common. If the
// field k.Source is nil, it becomes a function that returns the field status.chain of an object as
// one text. The chain begins with the object itself. Each further identity provides the credential
// that the identity before it uses.
func awsIdentity(k Kind) Kind {
	k.Program, k.AWSIdentity, k.Success = IdentityController, true, "Ready"
	if k.Source == nil {
		k.Source = of(func(o lentIdentity) string { return strings.Join(o.GetIdentityStatus().Chain, " > ") })
	}
	k.Found = of(func(o lentIdentity) *Found { return &Found{CloudIdentity: o.GetIdentityStatus().ARN} })
	return k
}
