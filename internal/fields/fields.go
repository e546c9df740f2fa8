// Package fields copies the identity fields of objects for package auth/spec, which alone
// interprets them. The controllers, the token server and the command line share it, so that all
// give auth/spec the same fields.
package fields

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// Of returns the identity fields of an object. It returns false for a kind without such fields. The
// result is a copy: changes of the object do not change it.
func Of(o metav1.Object) (spec.Fields, bool) {
	switch o := o.(type) {
	case *v1alpha1.OCIRepository:
		return OCIRepository(o), true
	case *v1alpha1.ImageRepository:
		return ImageRepository(o), true
	case *v1alpha1.Bucket:
		return Bucket(o), true
	case *infrav1.AWSCluster:
		return AWSCluster(o), true
	default:
		return spec.Fields{}, false
	}
}

// OCIRepository is [Of] for this kind.
func OCIRepository(o *v1alpha1.OCIRepository) spec.Fields {
	return Registry(v1alpha1.OCIRepositoryKind, o, o.Spec.URL, o.Spec.RegistryAccess)
}

// ImageRepository is [Of] for this kind.
func ImageRepository(o *v1alpha1.ImageRepository) spec.Fields {
	return Registry(v1alpha1.ImageRepositoryKind, o, o.Spec.Image, o.Spec.RegistryAccess)
}

// Registry returns the identity fields of o, an object of the kind that names the repository at
// address.
func Registry(kind auth.Kind, o metav1.Object, address string, a v1alpha1.RegistryAccess) spec.Fields {
	fields := spec.Fields{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Address: address,
		Provider: a.Provider, ServiceAccountName: a.ServiceAccountName, WorkloadIdentityName: a.WorkloadIdentityName,
		IdentityRef: identityRef(a.IdentityRef), PullSecrets: true,
		SecretRef: nameOf(a.SecretRef), CertSecretRef: nameOf(a.CertSecretRef), ProxySecretRef: nameOf(a.ProxySecretRef),
		Insecure: a.Insecure,
	}
	if c := a.Credential; c != nil {
		fields.Credential = &spec.Credential{Type: spec.CredentialType(c.Type), Audiences: slices.Clone(c.Audiences)}
	}
	return fields
}

// Bucket is [Of] for this kind.
func Bucket(o *v1alpha1.Bucket) spec.Fields {
	fields := spec.Fields{
		Namespace: o.Namespace, Provider: o.Spec.Provider, ServiceAccountName: o.Spec.ServiceAccountName,
		WorkloadIdentityName: o.Spec.WorkloadIdentityName, IdentityRef: identityRef(o.Spec.IdentityRef),
		SecretRef: nameOf(o.Spec.SecretRef), CertSecretRef: nameOf(o.Spec.CertSecretRef), ProxySecretRef: nameOf(o.Spec.ProxySecretRef),
		Insecure: o.Spec.Insecure,
	}
	if sts := o.Spec.STS; sts != nil {
		fields.STS = &spec.TokenService{Provider: sts.Provider, Endpoint: sts.Endpoint}
	}
	return fields
}

// AWSCluster is [Of] for this kind. An absent identityRef stands for the
// AWSClusterControllerIdentity default, as the schema says.
func AWSCluster(o *infrav1.AWSCluster) spec.Fields {
	ref := &spec.IdentityRef{Kind: identityv1.AWSClusterControllerIdentityKind, Name: identityv1.DefaultControllerIdentity}
	if o.Spec.IdentityRef != nil {
		ref = identityRef(o.Spec.IdentityRef)
	}
	return spec.Fields{Namespace: o.Namespace, Provider: v1alpha1.ProviderAWS, IdentityRef: ref}
}

// identityRef returns the AWS identity that a spec names; nil for none.
func identityRef(ref *meta.AWSIdentityReference) *spec.IdentityRef {
	if ref == nil {
		return nil
	}
	return &spec.IdentityRef{Kind: ref.Kind, Name: ref.Name}
}

// nameOf returns the name that a reference has; nil for none.
func nameOf(ref *meta.LocalReference) *string {
	if ref == nil {
		return nil
	}
	return new(ref.Name)
}
