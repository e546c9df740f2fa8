package ocirepository

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// plan is a spec after it was parsed and checked.
type plan struct {
	repository oci.Repository
	reference  oci.Reference
	selector   oci.LayerSelector
	ignore     archive.Patterns
	// anew says that the artifact must be made even if the status already has an artifact of this
	// revision.
	anew bool
}

// Decide implements source.Kind.
func (k kind) Decide(o *v1alpha1.OCIRepository, call source.Call) (plan, error) {
	s := o.Spec
	if s.Verify != nil { // the object may be older than the schema's rule
		return plan{}, object.Invalid("spec.verify", "remove it only if you accept that no signature is verified", "Lanyard does not verify signatures yet")
	}
	var p plan
	var err error
	if p.repository, err = oci.ParseURL(s.URL); err != nil {
		return plan{}, err
	}
	if s.Ref != nil {
		p.reference = oci.Reference{Tag: s.Ref.Tag, SemVer: s.Ref.Semver, SemVerFilter: s.Ref.SemverFilter, Digest: s.Ref.Digest}
	}
	p.reference.Chart = s.LayerSelector != nil && s.LayerSelector.MediaType == oci.ChartLayer
	if err := p.reference.Validate(); err != nil {
		return plan{}, err
	}
	if s.LayerSelector != nil {
		p.selector = oci.LayerSelector{MediaType: s.LayerSelector.MediaType, Operation: oci.Operation(s.LayerSelector.Operation)}
	}
	if err := p.selector.Validate(); err != nil {
		return plan{}, err
	}
	var ignore string
	if s.Ignore != nil {
		ignore = *s.Ignore
	}
	if p.ignore, err = archive.ParseOver(k.ignore, "spec.ignore", ignore); err != nil {
		return plan{}, object.Invalid("spec.ignore", "", "%w", err)
	}
	p.anew = !call.Stored ||
		!equality.Semantic.DeepEqual(s.Ignore, o.Status.ObservedIgnore) ||
		!equality.Semantic.DeepEqual(s.LayerSelector, o.Status.ObservedLayerSelector)
	return p, nil
}

// upToDate reports whether the status already has the artifact that the plan would make from the
// given revision.
func upToDate(o *v1alpha1.OCIRepository, p plan, revision string) bool {
	return !p.anew && o.Status.Artifact != nil && o.Status.Artifact.Revision == revision
}
