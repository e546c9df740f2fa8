package imagerepository

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/registry"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/fields"
)

// Reconciler scans the repositories of ImageRepositories.
type Reconciler = source.Reconciler[*v1alpha1.ImageRepository, plan]

// New makes a reconciler.
func New(shared *source.Shared, access *access.Access) *Reconciler {
	return source.New(shared, v1alpha1.ImageRepositoryKind, kind{registry.Registries{Access: access, Challenges: &oci.Challenges{}}})
}

// kind implements source.Kind.
type kind struct {
	registries registry.Registries
}

var _ source.Kind[*v1alpha1.ImageRepository, plan] = kind{}

// Empty implements source.Kind.
func (kind) Empty() (*v1alpha1.ImageRepository, client.ObjectList) {
	return &v1alpha1.ImageRepository{}, &v1alpha1.ImageRepositoryList{}
}

// View implements source.Kind.
func (kind) View(o *v1alpha1.ImageRepository) source.View {
	v := source.View{
		Fields: fields.ImageRepository(o),
		View:   object.View{Suspend: o.Spec.Suspend, Interval: o.Spec.Interval.Duration, Timeout: o.Spec.Timeout.DeepCopy()},
	}
	if scan := o.Status.LastScanResult; scan != nil {
		v.Found = fmt.Sprintf("tags of %s: %d", o.Status.CanonicalImageName, scan.TagCount)
	}
	return v
}

// Explain implements source.Kind.
func (kind) Explain(err error) (object.Failure, bool) { return registry.Explain(err) }
