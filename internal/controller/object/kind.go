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

// Object is a custom resource of Lanyard. All custom resources of Lanyard have a [meta.Status].
type Object interface {
	client.Object

	// GetStatus returns a pointer to the object's own status, for reading and writing.
	GetStatus() *meta.Status
}

// Kind has the parts that differ between kinds of objects. O is the pointer to the kind's API type,
// P the type of the plan that Decide makes.
type Kind[O Object, P any] interface {
	Definition[O]

	// Decide makes the plan of the spec, or refuses the spec. The error of a refusal is made by
	// [Invalid], or is one for which Explain returns a failure. Decide may read, but must change
	// neither o nor anything at the API server. It must not rely on a rule of the schema: an object
	// may be older than the rule.
	Decide(ctx context.Context, o O) (P, error)
	// Act carries out the plan and changes o's status accordingly. It must not set the conditions
	// Ready, Reconciling or Stalled. After an error, an earlier result stays in the status only
	// while the result is valid. ctx ends with the object's timeout.
	//
	// Most kinds let the [Reconciler] write the status when Act has returned. Act calls save to write
	// the current status earlier: for example, before it creates objects that only the status names.
	// After an error of save, Act must return the error at once.
	Act(ctx context.Context, o O, plan P, save func(ctx context.Context) error) (News, error)
	// Report is called after every Decide and Act. While the object is suspended, only Report is
	// called. Report writes the conditions that only this kind has. It may also publish the result
	// in another object, such as an ExternalArtifact. The string that Report returns is for the
	// message of the condition Ready. It describes the result in the status in a few words, such as
	// "stored artifact for revision 1.2.0". It is empty if the status has no result.
	Report(ctx context.Context, o O, outcome Outcome) (found string, err error)
	// Finalize removes an object's data that is stored elsewhere, such as an artifact. The
	// [Reconciler] calls Finalize when an object with Lanyard's finalizer is being deleted. After
	// an error the object stays, and the Reconciler calls Finalize again later. After a Stalled
	// failure, the Reconciler waits until a dependency or the object changes. After a
	// [*LeftoverError] the object is deleted.
	//
	// If the write that deletes the object fails, the Reconciler calls Finalize again. Then
	// Finalize must return the same LeftoverError again.
	Finalize(ctx context.Context, o O) error
}

// News is something that an event should announce. The zero value announces nothing.
type News struct {
	// Reason is the event's reason, such as NewArtifact.
	Reason string
	// Note is the event's text. Empty means the text that [Kind.Report] returns. If Act also returns an
	// error, only News with a Note is announced.
	Note string
	// Warning is announced by a further event, of the type Warning; the zero value by none.
	Warning Warning
}

// Warning is something that people should look at, although nothing has failed.
type Warning struct {
	// Reason is the event's reason, and Note is its text.
	Reason, Note string
}

// Definition describes the objects of a kind.
type Definition[O Object] interface {
	// Empty returns an empty object and an empty list of the kind.
	Empty() (O, client.ObjectList)
	// View returns a copy of the fields of an object that the [Reconciler] needs.
	View(o O) View
	// Explain returns the failure for an error that only this kind has. The [Reconciler] calls
	// Explain for errors that this package does not explain itself. If Message is empty, the
	// error's text is the message.
	Explain(err error) (Failure, bool)
}

// View has copies of the fields of an object that the [Reconciler] needs.
type View struct {
	// Suspend is spec.suspend.
	Suspend bool
	// Finalizer says that the object needs the finalizer, because it has data that is stored
	// elsewhere.
	Finalizer bool
	// SlowFinalizer says that Finalize can take long. So Finalize waits for a worker, as Act does. It
	// ends after [MaxTimeout], or when another namespace needs the place, and is called again.
	SlowFinalizer bool
	// Renewable says that Act renews the object's tokens on request ([RenewalRequested]). After Act
	// has succeeded, the [Reconciler] removes the request.
	Renewable bool
	// Interval is the time from a success to the next reconciliation. If it is zero, only a change
	// wakes the object. The [Reconciler] calls View again after Act, because Act may change the
	// interval.
	Interval time.Duration
	// RetryWithin is the longest pause after a failure. The pause doubles up to this bound. Zero
	// means two minutes.
	RetryWithin time.Duration
	// StartWithin spreads the first reconciliation of objects that exist when the controller
	// starts. Such an object is reconciled within this time, or when it changes. Zero means at
	// once. An object with an unhandled change or request is always reconciled at once.
	StartWithin time.Duration
	// Timeout bounds Act. It is at most [MaxTimeout]; nil means a minute.
	Timeout *metav1.Duration
	// DependsOn has the object's dependencies: when one of them changes, the object is reconciled.
	DependsOn []Dependency
}

// MaxTimeout bounds View.Timeout.
const MaxTimeout = 30 * time.Minute

const defaultTimeout = time.Minute

// removalGrace is how long the write that removes the finalizer may go on after the end of the
// work. The controllers wait at least five seconds for running work at shutdown, so the grace is
// shorter.
const removalGrace = 4 * time.Second

// Outcome is the result of a reconciliation.
type Outcome struct {
	// Reason is the failure's reason, as in Failure.Reason. It is empty if the spec is fulfilled,
	// or was not examined.
	Reason string
	// Message is the failure's message, as in Failure.Message.
	Message string
	// Err is the error of Decide or Act; nil if there is none.
	Err error
	// Refused says that Err comes from Decide, so Act was not called. The status may still show the
	// results of an earlier Act, which may be outdated.
	Refused bool
	// Suspended says that neither Decide nor Act was called, because spec.suspend is true.
	Suspended bool
	// Save writes the current status now. If the controller is then killed, the status is not lost.
	Save func(ctx context.Context) error
}

// Fulfilled reports whether the spec was examined and is fulfilled.
func (o Outcome) Fulfilled() bool { return o.Reason == "" && !o.Suspended }

// RetryNow reports whether the cause of the object's failure may have been fixed since the last
// attempt. This is so in three cases:
//   - The object has changed.
//   - There is a new request to reconcile it.
//   - The last attempt failed with [auth.CodeSubjectNotFound], and the subject may exist now.
func RetryNow(o Object) bool {
	status := o.GetStatus()
	// If the subject did not exist, its creation may have woken the object.
	waits := ready(status).Reason == string(auth.CodeSubjectNotFound)
	return status.ObservedGeneration > 0 && (asked(o) || waits)
}

// asked reports whether somebody changed the object, or requested its reconciliation, since its
// last reconciliation.
func asked(o Object) bool {
	return isNew(o) || requested(o) != o.GetStatus().LastHandledReconcileAt
}

// isNew reports whether this generation of the object has not been reconciled yet. The schema's
// default of observedGeneration is -1, so this is also true for a new object.
func isNew(o Object) bool { return o.GetGeneration() != o.GetStatus().ObservedGeneration }

// requested returns the object's request to be reconciled now, or an empty string. The request is
// copied into the status, so its length is limited.
func requested(o metav1.Object) string {
	annotations := o.GetAnnotations()
	value, flux := annotations[meta.ReconcileRequestedAnnotation], annotations[meta.FluxReconcileRequestedAnnotation]
	if value == "" || requestTime(flux).After(requestTime(value)) {
		value = flux
	}
	return clip(value, 256)
}

// RenewalRequested reports whether somebody asks for new tokens of the object's WorkloadIdentity.
func RenewalRequested(o metav1.Object) bool {
	return o.GetAnnotations()[meta.OperationAnnotation] == meta.OperationRenewToken
}

// AllowedAccount returns the cloud account that an annotation allows for the object, or an empty
// string.
func AllowedAccount(o metav1.Object) string {
	return clip(o.GetAnnotations()[meta.AllowAccountChangeAnnotation], 256)
}

// requestTime parses a request as a time in RFC 3339 or in seconds since 1970. For other values the
// time is zero.
func requestTime(value string) time.Time {
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Unix(seconds, 0)
	}
	at, _ := time.Parse(time.RFC3339, value) // the zero time after an error
	return at
}
