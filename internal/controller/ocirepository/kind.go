package ocirepository

import (
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/registry"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Reconciler fetches the artifacts of OCIRepositories.
type Reconciler = source.Reconciler[*v1alpha1.OCIRepository, plan]

// New makes a reconciler. maxSize is a limit in bytes. It applies to the transferred size of an
// artifact, and also to the unpacked size. Zero means the defaults of packages oci and archive.
func New(shared *source.Shared, access *access.Access, maxSize int64) *Reconciler {
	return source.New(shared, kinds.OCIRepository(), kind{
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
	ignore     archive.Patterns // the patterns for an empty spec.ignore
	maxSize    int64
}

var _ source.Kind[*v1alpha1.OCIRepository, plan] = kind{}

// Explain implements source.Kind.
func (kind) Explain(err error) (object.Failure, bool) { return registry.Explain(err) }
