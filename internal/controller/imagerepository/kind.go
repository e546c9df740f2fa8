package imagerepository

import (
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/registry"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Reconciler scans the repositories of ImageRepositories.
type Reconciler = source.Reconciler[*v1alpha1.ImageRepository, plan]

// New makes a reconciler.
func New(shared *source.Shared, access *access.Access) *Reconciler {
	return source.New(shared, kinds.ImageRepository(), kind{registry.Registries{Access: access, Challenges: &oci.Challenges{}}})
}

// kind implements source.Kind.
type kind struct {
	registries registry.Registries
}

var _ source.Kind[*v1alpha1.ImageRepository, plan] = kind{}

// Explain implements source.Kind.
func (kind) Explain(err error) (object.Failure, bool) { return registry.Explain(err) }
