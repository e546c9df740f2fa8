package ocirepository

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/registry"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/fields"
)

// Reconciler fetches the artifacts of OCIRepositories.
type Reconciler = source.Reconciler[*v1alpha1.OCIRepository, plan]

// New makes a reconciler. maxSize bounds an artifact, transferred and unpacked, in bytes; zero
// stands for the defaults of packages oci and archive.
func New(shared *source.Shared, access *access.Access, maxSize int64) *Reconciler {
	return source.New(shared, v1alpha1.OCIRepositoryKind, kind{
		registries: registry.Registries{Access: access, MaxLayerBytes: maxSize, Challenges: &oci.Challenges{}},
		artifacts:  shared.Artifacts,
		ignore:     archive.DefaultPatterns(),
		maxSize:    maxSize,
	})
}

// kind implements source.Kind.
type kind struct {
	registries registry.Registries
	artifacts  *source.Artifacts
	ignore     archive.Patterns // where spec.ignore is empty
	maxSize    int64
}

var _ source.Kind[*v1alpha1.OCIRepository, plan] = kind{}

// Empty implements source.Kind.
func (kind) Empty() (*v1alpha1.OCIRepository, client.ObjectList) {
	return &v1alpha1.OCIRepository{}, &v1alpha1.OCIRepositoryList{}
}

// View implements source.Kind.
func (kind) View(o *v1alpha1.OCIRepository) source.View {
	return source.View{
		Fields:   fields.OCIRepository(o),
		View:     object.View{Suspend: o.Spec.Suspend, Interval: o.Spec.Interval.Duration, Timeout: o.Spec.Timeout.DeepCopy(), Finalizer: true},
		Artifact: o.Status.Artifact.DeepCopy(), Publish: o.Spec.ExternalArtifact,
	}
}

// Explain implements source.Kind.
func (kind) Explain(err error) (object.Failure, bool) { return registry.Explain(err) }
