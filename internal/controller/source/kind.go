package source

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Object is a custom resource that fetches something.
type Object interface {
	object.Object

	// GetFetchStatus is the part of the status that all kinds have that fetch.
	GetFetchStatus() *meta.FetchStatus
}

// Kind has the parts that differ between kinds of sources. O is the pointer to its API type, P the
// plan that it makes of a spec.
type Kind[O Object, P any] interface {
	// Empty makes an object without content, and a list of them.
	Empty() (O, client.ObjectList)
	// View copies from an object what the frame needs.
	View(o O) View
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

// View has the fields of a source that the frame needs. It is a copy: changes of the object do not
// change the view.
type View struct {
	// View has the fields that the frame of all objects needs. A kind sets Finalizer if it keeps
	// artifacts, which must be removed with the object. It leaves DependsOn and Renewable
	// empty: they follow from Fields.
	object.View

	// Fields are the identity fields of the spec.
	Fields spec.Fields
	// Artifact is the artifact in the status. It is nil if there is none, and always nil for kinds
	// that store no artifacts.
	Artifact *v1alpha1.Artifact
	// Publish is spec.externalArtifact; always false with kinds that keep no artifact.
	Publish bool
	// Found says in a few words what the status offers. The frame knows what to say of an artifact.
	Found string
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
func (v View) checkBounds() error {
	if d := v.Interval; d < minInterval || d > maxInterval {
		return object.Invalid("spec.interval", "write a duration from 1s to 8760h, such as 5m", "%s is out of bounds", d)
	}
	if v.Timeout != nil && (v.Timeout.Duration < minTimeout || v.Timeout.Duration > object.MaxTimeout) {
		return object.Invalid("spec.timeout", "write a duration from 1s to 30m, such as 60s", "%s is out of bounds", v.Timeout.Duration)
	}
	return nil
}

// found says what the status offers.
func (v View) found() string {
	if v.Artifact != nil {
		return "stored artifact for revision " + v.Artifact.Revision
	}
	return v.Found
}
