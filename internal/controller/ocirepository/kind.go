package ocirepository

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/registry"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Reconciler fetches the artifacts of OCIRepositories.
type Reconciler = source.Reconciler[*v1alpha1.OCIRepository, plan]

// New makes a reconciler. maxSize bounds an artifact, transferred and unpacked, in bytes; zero stands for the defaults of packages
// oci and archive.
func New(shared *source.Shared, access *source.Access, maxSize int64) *Reconciler {
	return source.New(shared, v1alpha1.OCIRepositoryKind, kind{
		registries: registry.Registries{Access: access, Limits: oci.Limits{MaxLayerBytes: maxSize}},
		artifacts:  shared.Artifacts,
		maxSize:    maxSize,
	})
}

// kind implements source.Kind.
type kind struct {
	registries registry.Registries
	artifacts  *source.Artifacts
	maxSize    int64
}

var _ source.Kind[*v1alpha1.OCIRepository, plan] = kind{}

// Empty implements source.Kind.
func (kind) Empty() (*v1alpha1.OCIRepository, client.ObjectList) {
	return &v1alpha1.OCIRepository{}, &v1alpha1.OCIRepositoryList{}
}

// View implements source.Kind.
func (kind) View(o *v1alpha1.OCIRepository) source.View {
	v := source.View{
		Fields: spec.Fields{
			Namespace: o.Namespace, Provider: o.Spec.Provider, ServiceAccountName: o.Spec.ServiceAccountName, PullSecrets: true,
			SecretRef: source.NameOf(o.Spec.SecretRef), CertSecretRef: source.NameOf(o.Spec.CertSecretRef), ProxySecretRef: source.NameOf(o.Spec.ProxySecretRef),
			Insecure: o.Spec.Insecure,
		},
		Suspend: o.Spec.Suspend, Interval: o.Spec.Interval, Timeout: o.Spec.Timeout,
		Status: &o.Status.Status, Stores: true, Artifact: o.Status.Artifact, Publish: o.Spec.ExternalArtifact,
	}
	if v.Artifact != nil {
		v.Found = "stored artifact for revision " + v.Artifact.Revision
	}
	return v
}

// Explain implements source.Kind.
func (kind) Explain(err error) (source.Failure, bool) { return registry.Explain(err) }
