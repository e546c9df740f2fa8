package ocirepository

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// plan is a spec that is understood.
type plan struct {
	repository oci.Repository
	reference  oci.Reference
	selector   oci.LayerSelector
	ignore     archive.Patterns
	// anew makes the artifact even if its revision is the one that the status names.
	anew bool
}

// Decide implements source.Kind.
func (kind) Decide(o *v1alpha1.OCIRepository, stored bool) (plan, error) {
	s := o.Spec
	var p plan
	var err error
	if p.repository, err = oci.ParseURL(s.URL); err != nil {
		return plan{}, err
	}
	if s.Ref != nil {
		p.reference = oci.Reference{Tag: s.Ref.Tag, SemVer: s.Ref.Semver, SemVerFilter: s.Ref.SemverFilter, Digest: s.Ref.Digest}
	}
	if err := p.reference.Validate(); err != nil {
		return plan{}, err
	}
	if s.LayerSelector != nil {
		p.selector = oci.LayerSelector{MediaType: s.LayerSelector.MediaType, Operation: oci.Operation(s.LayerSelector.Operation)}
	}
	if err := p.selector.Validate(); err != nil {
		return plan{}, err
	}
	p.ignore = archive.DefaultPatterns()
	if s.Ignore != nil {
		if p.ignore, err = archive.ParsePatterns(*s.Ignore); err != nil {
			return plan{}, source.Invalid("spec.ignore", "", "%w", err)
		}
	}
	p.anew = !stored ||
		!equality.Semantic.DeepEqual(s.Ignore, o.Status.ObservedIgnore) ||
		!equality.Semantic.DeepEqual(s.LayerSelector, o.Status.ObservedLayerSelector)
	return p, nil
}

// upToDate reports whether the artifact in the status is what the plan would make of revision.
func upToDate(o *v1alpha1.OCIRepository, p plan, revision string) bool {
	return !p.anew && o.Status.Artifact != nil && o.Status.Artifact.Revision == revision
}
