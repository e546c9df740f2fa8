package object

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
)

// Object is a custom resource with the status that all of Lanyard's have.
type Object interface {
	client.Object

	// GetStatus is the object's own status, for reading and writing.
	GetStatus() *meta.Status
}

// Kind has the parts that differ between kinds of objects. O is the pointer to its API type, P the
// plan that it makes of a spec.
type Kind[O Object, P any] interface {
	Definition[O]

	// Decide makes the plan of the spec, or refuses the spec with an error of [Invalid] or another
	// error that Explain knows. It may read, but changes neither o nor anything at the API server. It
	// relies on no rule of the schema: an object may be older than the rule.
	Decide(ctx context.Context, o O) (P, error)
	// Act carries out the plan and changes o's status accordingly, except for conditions. After an
	// error the status keeps what it had before. ctx ends with the object's timeout. If Act found
	// something that an event should announce, news is the event's reason, such as NewArtifact.
	Act(ctx context.Context, o O, plan P) (news string, err error)
	// Report follows every Decide and Act, and replaces them while the object is suspended. It
	// writes the conditions that only this kind has, and publishes what the status offers. found is
	// the message of the condition Ready. It says in a few words what the status offers, such as
	// "stored artifact for revision 1.2.0"; empty if the status offers nothing.
	Report(ctx context.Context, o O, outcome Outcome) (found string, err error)
	// Finalize removes what is kept for an object that is being deleted. The frame calls it if the
	// object has the finalizer. After an error the object stays; if the failure is Stalled, until a
	// dependency changes.
	Finalize(ctx context.Context, o O) error
}

// Definition says what the objects of a kind are.
type Definition[O Object] interface {
	// Empty makes an object without content, and a list of them.
	Empty() (O, client.ObjectList)
	// View copies from an object what the frame needs.
	View(o O) View
	// Explain knows the failures of this kind alone. The frame asks it about errors that the frame
	// does not know. If Message is empty, the error's text is the message.
	Explain(err error) (Failure, bool)
}

// View is what the frame needs of an object, copied.
type View struct {
	// Suspend is spec.suspend.
	Suspend bool
	// Finalizer says that something is kept for the object outside of it: the object gets the
	// finalizer.
	Finalizer bool
	// Renewable says that Act renews the object's tokens on request ([RenewalRequested]). After Act
	// has succeeded, the frame removes the request.
	Renewable bool
	// Interval is how long after a success the object is reconciled again; zero if only a change
	// wakes it. The frame asks for the view again after Act, from which the interval may follow.
	Interval time.Duration
	// RetryWithin bounds the pause after a failure, which doubles up to this bound; zero for two
	// minutes.
	RetryWithin time.Duration
	// StartWithin spreads the first look at objects that are there when the controller starts. An
	// object is looked at within this time, or when it changes. Zero, and for an object that nobody
	// has looked at since its last change: at once.
	StartWithin time.Duration
	// Timeout bounds Act; at most [MaxTimeout], and nil for a minute.
	Timeout *metav1.Duration
	// DependsOn has the objects on which the object depends: when one of them changes, the object
	// is reconciled.
	DependsOn []Dependency
}

// MaxTimeout bounds View.Timeout.
const MaxTimeout = 30 * time.Minute

const defaultTimeout = time.Minute

// Outcome is what a reconciliation came to.
type Outcome struct {
	// Reason is the failure's reason, as in Failure.Reason. It is empty if the spec is fulfilled,
	// or was not examined.
	Reason string
	// Message is the failure's message, as in Failure.Message.
	Message string
	// Err is the error of Decide or Act; nil if there is none.
	Err error
	// Refused says that Err is of Decide, so Act was not called. What the status says about an
	// earlier Act may no longer be true.
	Refused bool
	// Suspended says that spec.suspend holds the object: neither Decide nor Act was called.
	Suspended bool
	// Save writes the current status, so that a controller that is killed in the next moment finds
	// it after its restart.
	Save func(ctx context.Context) error
}

// Fulfilled reports whether the spec was examined and is fulfilled.
func (o Outcome) Fulfilled() bool { return o.Reason == "" && !o.Suspended }

// RetryNow reports whether somebody did something since the last attempt that may have healed its
// failure.
func RetryNow(o Object) bool {
	status := o.GetStatus()
	// An object that waits for its account is woken by the account's creation.
	waits := ready(status).Reason == string(auth.CodeSubjectNotFound)
	return status.ObservedGeneration > 0 && (asked(o) || waits)
}

// asked reports whether somebody changed the object, or asked for its reconciliation, since the
// last one.
func asked(o Object) bool {
	return isNew(o) || requested(o) != o.GetStatus().LastHandledReconcileAt
}

// isNew reports whether this generation of the object was not reconciled before. The schema's
// default of observedGeneration is -1.
func isNew(o Object) bool { return o.GetGeneration() != o.GetStatus().ObservedGeneration }

// requested is the object's request to be reconciled now, or empty. It is repeated in the status,
// so its length is limited.
func requested(o client.Object) string {
	annotations := o.GetAnnotations()
	value, flux := annotations[meta.ReconcileRequestedAnnotation], annotations[meta.FluxReconcileRequestedAnnotation]
	if value == "" || requestTime(flux).After(requestTime(value)) {
		value = flux
	}
	return clip(value, 256)
}

// RenewalRequested reports whether somebody asks for new tokens of the object's WorkloadIdentity.
func RenewalRequested(o client.Object) bool {
	return o.GetAnnotations()[meta.OperationAnnotation] == meta.OperationRenewToken
}

// AllowedAccount is the account to which the object may change, or empty.
func AllowedAccount(o client.Object) string {
	return clip(o.GetAnnotations()[meta.AllowAccountChangeAnnotation], 256)
}

// requestTime is the time that a request names, in RFC 3339 or in seconds since 1970; zero for
// none.
func requestTime(value string) time.Time {
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Unix(seconds, 0)
	}
	at, _ := time.Parse(time.RFC3339, value) // zero with an error
	return at
}
