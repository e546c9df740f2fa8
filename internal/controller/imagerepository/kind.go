package imagerepository

import (
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/registry"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Reconciler scans the repositories of ImageRepositories.
type Reconciler = tenant.Reconciler[*v1alpha1.ImageRepository, plan]

// New makes a reconciler.
func New(shared *tenant.Shared, access *access.Access) *Reconciler {
	entry := kinds.ImageRepository()
	return tenant.New(shared, entry, kind{
		tenant.Toolkit[*v1alpha1.ImageRepository]{Entry: entry, Shared: shared},
		registry.Registries{Access: access, Challenges: &oci.Challenges{}},
	})
}

// kind implements tenant.Kind.
type kind struct {
	tenant.Toolkit[*v1alpha1.ImageRepository]

	registries registry.Registries
}

// Explain implements tenant.Kind.
func (kind) Explain(err error) (object.Failure, bool) { return registry.Explain(err) }
