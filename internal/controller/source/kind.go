package source

import (
	"context"
	"time"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Object is a custom resource that fetches something.
type Object = kinds.Tenant

// Kind has the parts that differ between kinds of sources. O is the pointer to its API type, P the
// plan that it makes of a spec.
type Kind[O Object, P any] interface {
	// Decide makes the plan of the spec for the call's identity, or refuses the spec with an error
	// of [object.Invalid] or another error that Explain knows. It reads no clock and makes no
	// request. It relies on no rule of the schema: an object may be older than the rule.
	Decide(o O, call Call) (P, error)
	// Fetch carries out the plan and changes o's status accordingly, except for conditions. After
	// an error the status keeps what was found before. ctx ends with the object's timeout.
	Fetch(ctx context.Context, o O, plan P, call Call) error
	// Explain knows the failures of this kind alone, as object.Definition's does.
	Explain(err error) (object.Failure, bool)
}

// view has the fields of a source that the frame needs. It is a copy: changes of the object do not
// change the view.
type view struct {
	object.View

	fields   spec.Fields        // the identity fields of the spec
	artifact *v1alpha1.Artifact // in the status; nil if there is none
	publish  bool               // spec.externalArtifact
}

// viewOf copies from an object what the frame needs. An object that keeps an artifact has the
// finalizer: the artifact must be removed with the object.
func viewOf(kind *kinds.Kind, o Object) view {
	schedule := o.GetSchedule()
	v := view{
		View:   object.View{Suspend: schedule.Suspend, Interval: schedule.Interval.Duration, Timeout: schedule.Timeout.DeepCopy()},
		fields: kind.Fields(o),
	}
	if keeper, ok := o.(kinds.Keeper); ok {
		v.Finalizer, v.artifact, v.publish = true, artifactOf(o).DeepCopy(), keeper.GetPublication().ExternalArtifact
	}
	return v
}

// artifactOf returns the artifact in the status; nil if there is none.
func artifactOf(o Object) *v1alpha1.Artifact {
	if keeper, ok := o.(kinds.Keeper); ok {
		return keeper.GetArtifactStatus().Artifact
	}
	return nil
}

// Call is the permission for one reconciliation's calls.
type Call struct {
	access.Call

	// Owner is the object as the store knows it.
	Owner store.Object
	// Stored reports whether the artifact in the status is in the store, and whole.
	Stored bool
}

// Bounds of the schemas, which hold for stored objects too.
const (
	minInterval = time.Second
	maxInterval = 8760 * time.Hour
	minTimeout  = time.Second
)

// checkBounds refuses an interval or a timeout that the schema does not allow.
func (v view) checkBounds() error {
	if d := v.Interval; d < minInterval || d > maxInterval {
		return object.Invalid("spec.interval", "write a duration from 1s to 8760h, such as 5m", "%s is out of bounds", d)
	}
	if v.Timeout != nil && (v.Timeout.Duration < minTimeout || v.Timeout.Duration > object.MaxTimeout) {
		return object.Invalid("spec.timeout", "write a duration from 1s to 30m, such as 60s", "%s is out of bounds", v.Timeout.Duration)
	}
	return nil
}
