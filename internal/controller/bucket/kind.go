package bucket

import (
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Reconciler fetches the artifacts of Buckets.
type Reconciler = source.Reconciler[*v1alpha1.Bucket, plan]

// New makes a reconciler. services maps each provider's name to its service. maxSize is the largest
// size of an unpacked artifact, in bytes; zero means the default of package archive.
func New(shared *source.Shared, access *access.Access, services map[string]buckets.Service, maxSize int64) *Reconciler {
	return source.New(shared, kinds.Bucket(), kind{
		access: access, artifacts: shared.Artifacts, services: services, maxSize: maxSize,
	})
}

// kind implements source.Kind.
type kind struct {
	access    *access.Access
	artifacts *source.Artifacts
	services  map[string]buckets.Service
	maxSize   int64
}

var _ source.Kind[*v1alpha1.Bucket, plan] = kind{}

// Explain implements source.Kind.
func (kind) Explain(err error) (object.Failure, bool) {
	return access.ExplainOrigin(err, meta.ReasonBucketUnreachable, meta.ReasonBucketRefused)
}
