package kinds

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// OCIRepository returns the entry of the kind OCIRepository in the [Table].
func OCIRepository() Kind {
	return Acting(Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.OCIRepositoryKind),
		Plural:           "ocirepositories", Short: "loci", Peers: []string{"source.toolkit.fluxcd.io"},
		New:     func() Resource { return &v1alpha1.OCIRepository{} },
		NewList: func() List { return &v1alpha1.OCIRepositoryList{} },
		Server:  Registry, AddressField: "spec.url", Success: "Pulled",
	}, of(func(o *v1alpha1.OCIRepository) string { return o.Spec.URL }))
}

// Bucket returns the entry of the kind Bucket in the [Table].
func Bucket() Kind {
	k := Acting(Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.BucketKind),
		Plural:           "buckets", Short: "lbkt", Peers: []string{"source.toolkit.fluxcd.io"},
		New:     func() Resource { return &v1alpha1.Bucket{} },
		NewList: func() List { return &v1alpha1.BucketList{} },
		Server:  Buckets, AddressField: "spec.endpoint", Success: "Pulled",
		Bucket: of(func(o *v1alpha1.Bucket) v1alpha1.BucketSpec { return o.Spec }),
		Region: of(func(o *v1alpha1.Bucket) string { return o.Spec.Region }),
		Source: of(func(o *v1alpha1.Bucket) string { return strings.TrimPrefix(o.Spec.Endpoint+"/"+o.Spec.BucketName, "/") }),
		// The function returns an empty address for Fields.Address. Only spec.credential needs this
		// address, and a Bucket has no spec.credential.
	}, func(Resource) string { return "" })
	access := k.Fields
	k.Fields = of(func(o *v1alpha1.Bucket) spec.Fields {
		fields := access(o)
		if sts := o.Spec.STS; sts != nil {
			fields.STS = &spec.TokenService{Provider: sts.Provider, Endpoint: sts.Endpoint}
		}
		return fields
	})
	return k
}

// ImageRepository returns the entry of the kind ImageRepository in the [Table].
func ImageRepository() Kind {
	return Acting(Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.ImageRepositoryKind),
		Plural:           "imagerepositories", Short: "lir", Peers: []string{"image.toolkit.fluxcd.io"}, FluxReference: "imageRepositoryRef",
		New:     func() Resource { return &v1alpha1.ImageRepository{} },
		NewList: func() List { return &v1alpha1.ImageRepositoryList{} },
		Server:  Registry, AddressField: "spec.image", Success: "Scanned",
		Found: of(func(o *v1alpha1.ImageRepository) *Found {
			scan := o.Status.LastScanResult
			if scan == nil {
				return nil
			}
			return &Found{Text: fmt.Sprintf("tags of %s: %d", o.Status.CanonicalImageName, scan.TagCount), Tags: &scan.TagCount}
		}),
	}, of(func(o *v1alpha1.ImageRepository) string { return o.Spec.Image }))
}

// Kustomization returns the entry of the kind Kustomization in the [Table].
func Kustomization() Kind {
	return Kind{
		GroupVersionKind: v1alpha1.GroupVersion().WithKind(v1alpha1.KustomizationKind),
		Plural:           "kustomizations", Short: "lks", Program: ApplyController, Peers: []string{"kustomize.toolkit.fluxcd.io"},
		New:     func() Resource { return &v1alpha1.Kustomization{} },
		NewList: func() List { return &v1alpha1.KustomizationList{} },
		Account: of(func(o *v1alpha1.Kustomization) string { return o.Spec.ServiceAccountName }),
		KubeConfig: of(func(o *v1alpha1.Kustomization) string {
			if config := o.Spec.KubeConfig; config != nil && config.SecretRef != nil {
				return config.SecretRef.Name
			}
			return ""
		}),
		Decryption: of(DecryptionOf),
		IdentityRef: of(func(o *v1alpha1.Kustomization) *spec.IdentityRef {
			if o.Spec.Decryption == nil {
				return nil
			}
			return refOf(o.Spec.Decryption.IdentityRef)
		}),
		OnlyIdentityRef: of(func(o *v1alpha1.Kustomization) Resource {
			kept := &v1alpha1.Kustomization{}
			if o.Spec.Decryption != nil && o.Spec.Decryption.IdentityRef != nil {
				kept.Spec.Decryption = &v1alpha1.Decryption{IdentityRef: o.Spec.Decryption.IdentityRef}
			}
			return kept
		}),
		Success: "Applied",
		Source: of(func(o *v1alpha1.Kustomization) string {
			return strings.TrimSuffix(o.Spec.SourceRef.Kind+"/"+o.Spec.SourceRef.Name+"/"+strings.Trim(strings.TrimPrefix(o.Spec.Path, "."), "/"), "/")
		}),
		Found: of(func(o *v1alpha1.Kustomization) *Found {
			if o.Status.LastAppliedRevision == "" {
				return nil
			}
			return &Found{Text: "revision " + o.Status.LastAppliedRevision, Revision: o.Status.LastAppliedRevision}
		}),
	}
}

// DecryptionOf implements Kind.Decryption for Kustomizations. The identity fields name no cloud: each
// encrypted file names its keys.
func DecryptionOf(o *v1alpha1.Kustomization) *Decryption {
	d := o.Spec.Decryption
	if d == nil {
		return nil
	}
	return &Decryption{
		Fields: spec.Fields{
			Namespace: o.Namespace, Path: "spec.decryption", ProviderLater: true, ServiceAccountName: d.ServiceAccountName,
			WorkloadIdentityName: d.WorkloadIdentityName, IdentityRef: refOf(d.IdentityRef), SecretRef: nameOf(d.SecretRef),
		},
		Status: o.Status.Decryption,
	}
}
