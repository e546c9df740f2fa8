package ocirepository

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// action is what a reconciliation does.
type action int

const (
	// suspend does nothing but say so.
	suspend action = iota + 1
	// refuse says what is wrong with the object and waits until it changes.
	refuse
	// fetch asks the registry and stores what is new.
	fetch
)

// facts are all that a reconciliation is decided by.
type facts struct {
	object *v1alpha1.OCIRepository
	// stored: the artifact that the status names is in the store, and whole.
	stored bool
	// identity is whose credential the object gets.
	identity spec.Identity
	// refused is why it gets none; nil otherwise.
	refused error
}

// plan is a reconciliation that is decided.
type plan struct {
	action action
	// refusal is why, with refuse.
	refusal error

	// What follows is set with fetch.

	identity   spec.Identity
	repository oci.Repository
	reference  oci.Reference
	selector   oci.LayerSelector
	ignore     archive.Patterns
	timeout    time.Duration
	// anew makes the artifact even if its revision is the one that the status names.
	anew bool
	// retryNow passes failures that are remembered: somebody changed the object or asked for it since.
	retryNow bool
}

// Bounds of the schema, which hold for stored objects too.
const (
	minInterval    = time.Second
	maxInterval    = 8760 * time.Hour
	minTimeout     = time.Second
	maxTimeout     = 30 * time.Minute
	defaultTimeout = 60 * time.Second
)

// decide judges the facts. It reads no clock and calls nobody. It trusts no rule of the schema: objects are stored before
// rules are, and around them.
func decide(f facts) plan {
	o := f.object
	if o.Spec.Suspend {
		return plan{action: suspend}
	}
	p := plan{action: fetch, identity: f.identity, timeout: defaultTimeout}
	if err := p.read(&o.Spec); err != nil {
		return plan{action: refuse, refusal: err}
	}
	if f.refused != nil {
		return plan{action: refuse, refusal: f.refused}
	}
	p.anew = !f.stored ||
		!equality.Semantic.DeepEqual(o.Spec.Ignore, o.Status.ObservedIgnore) ||
		!equality.Semantic.DeepEqual(o.Spec.LayerSelector, o.Status.ObservedLayerSelector)
	changed := o.Generation != o.Status.ObservedGeneration || requested(o) != o.Status.LastHandledReconcileAt
	// An object that waits for its account is woken by the account's creation.
	waits := ready(o).Reason == string(auth.CodeSubjectNotFound)
	p.retryNow = o.Status.ObservedGeneration != 0 && (changed || waits)
	return p
}

// read parses what does not depend on identity.
func (p *plan) read(s *v1alpha1.OCIRepositorySpec) error {
	if d := s.Interval.Duration; d < minInterval || d > maxInterval {
		return invalid("spec.interval", "write a duration from 1s to 8760h, such as 5m", "%s is out of bounds", d)
	}
	if s.Timeout != nil {
		if p.timeout = s.Timeout.Duration; p.timeout < minTimeout || p.timeout > maxTimeout {
			return invalid("spec.timeout", "write a duration from 1s to 30m, such as 60s", "%s is out of bounds", p.timeout)
		}
	}
	var err error
	if p.repository, err = oci.ParseURL(s.URL); err != nil {
		return err
	}
	if s.Ref != nil {
		p.reference = oci.Reference{Tag: s.Ref.Tag, SemVer: s.Ref.Semver, SemVerFilter: s.Ref.SemverFilter, Digest: s.Ref.Digest}
	}
	if err := p.reference.Validate(); err != nil {
		return err
	}
	if s.LayerSelector != nil {
		p.selector = oci.LayerSelector{MediaType: s.LayerSelector.MediaType, Operation: oci.Operation(s.LayerSelector.Operation)}
	}
	if err := p.selector.Validate(); err != nil {
		return err
	}
	p.ignore = archive.DefaultPatterns()
	if s.Ignore != nil {
		if p.ignore, err = archive.ParsePatterns(*s.Ignore); err != nil {
			return &refusal{reason: meta.ReasonInvalidSpec, field: "spec.ignore", err: err}
		}
	}
	return nil
}

// upToDate reports whether the artifact in the status is what the plan would make of revision.
func upToDate(o *v1alpha1.OCIRepository, p plan, revision string) bool {
	return !p.anew && o.Status.Artifact != nil && o.Status.Artifact.Revision == revision
}

// requested is the object's request to be reconciled now, or empty. It is repeated in the status, so it is bounded.
func requested(o *v1alpha1.OCIRepository) string {
	return clip(o.Annotations[meta.ReconcileRequestedAnnotation], 256)
}

func invalid(field, fix, format string, args ...any) error {
	return &refusal{reason: meta.ReasonInvalidSpec, field: field, fix: fix, err: fmt.Errorf(format, args...)}
}
