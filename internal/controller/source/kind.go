package source

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// Kind is what sets one kind of source apart. O is the pointer to its API type, P the plan that it makes of a spec.
type Kind[O client.Object, P any] interface {
	// Empty makes an object without content, and a list of them.
	Empty() (O, client.ObjectList)
	// View shows the frame what it needs of an object.
	View(o O) View
	// Decide says what the spec comes to, or refuses it with an error of [Invalid] or one that Explain knows. It reads no
	// clock and calls nobody, and trusts no rule of the schema: objects are stored before rules are, and around them.
	// stored: the artifact that the status names is in the store, and whole.
	Decide(o O, stored bool) (P, error)
	// Fetch does what the plan says and changes o's status accordingly; conditions are the frame's. After an error the
	// status keeps what was found before. ctx ends with the object's timeout.
	Fetch(ctx context.Context, o O, plan P, call Call) error
	// Explain knows the failures of this kind alone, and is asked when the frame does not know one. An empty Message is the
	// error's text.
	Explain(err error) (Failure, bool)
}

// View is what all sources have in common, wherever their kind keeps it.
type View struct {
	// Fields are the identity fields of the spec.
	Fields spec.Fields
	// Suspend is spec.suspend.
	Suspend bool
	// Interval is spec.interval.
	Interval metav1.Duration
	// Timeout is spec.timeout; nil for the default.
	Timeout *metav1.Duration
	// Status is the object's own, for reading and writing.
	Status *meta.Status
	// Stores says that the kind keeps artifacts, which must be removed with the object.
	Stores bool
	// Artifact is the one in the status; nil for none, and always with kinds that keep none.
	Artifact *v1alpha1.Artifact
	// Publish is spec.externalArtifact; always false with kinds that keep no artifact.
	Publish bool
	// Found says in a few words what the status has to offer, such as "stored artifact for revision 1.2.0"; empty when it has
	// nothing. It is the message of the condition Ready.
	Found string
}

// NameOf is the name in a reference, as [spec.Fields] takes it; nil when there is no reference.
func NameOf(ref *meta.LocalReference) *string {
	if ref == nil {
		return nil
	}
	return &ref.Name
}

// Call is the permission for one reconciliation's calls.
type Call struct {
	// Object is the object, with its kind as people write it.
	Object auth.InvolvedObject
	// Owner is the object as the store knows it.
	Owner store.Object
	// Identity is whose credential the object gets.
	Identity spec.Identity
	// RetryNow passes failures that are remembered: somebody changed the object or asked for it since.
	RetryNow bool
}

// Bounds of the schemas, which hold for stored objects too.
const (
	minInterval    = time.Second
	maxInterval    = 8760 * time.Hour
	minTimeout     = time.Second
	maxTimeout     = 30 * time.Minute
	defaultTimeout = 60 * time.Second
)

// limit is how long a reconciliation may take.
func (v View) limit() (time.Duration, error) {
	if d := v.Interval.Duration; d < minInterval || d > maxInterval {
		return 0, Invalid("spec.interval", "write a duration from 1s to 8760h, such as 5m", "%s is out of bounds", d)
	}
	if v.Timeout == nil {
		return defaultTimeout, nil
	}
	d := v.Timeout.Duration
	if d < minTimeout || d > maxTimeout {
		return 0, Invalid("spec.timeout", "write a duration from 1s to 30m, such as 60s", "%s is out of bounds", d)
	}
	return d, nil
}

// retryNow reports whether somebody did something since the last attempt that may have healed it.
func retryNow(o client.Object, status *meta.Status) bool {
	changed := o.GetGeneration() != status.ObservedGeneration || requested(o) != status.LastHandledReconcileAt
	// An object that waits for its account is woken by the account's creation.
	waits := ready(status).Reason == string(auth.CodeSubjectNotFound)
	return status.ObservedGeneration != 0 && (changed || waits)
}

// requested is the object's request to be reconciled now, or empty. It is repeated in the status, so it is bounded.
func requested(o client.Object) string {
	return clip(o.GetAnnotations()[meta.ReconcileRequestedAnnotation], 256)
}
