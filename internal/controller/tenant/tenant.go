// Package tenant has the code that is shared by the kinds whose objects act as a tenant. Such an
// object acts with the credential of an identity in its spec. The package resolves the identity,
// reconciles the object again when the identity changes, renews tokens on request and measures
// durations. The kind decides what to do with the credential.
//
// The package is built on package object, which has the code for all kinds. Package source is built
// on package tenant, and adds a store of artifacts.
package tenant

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Kind has the parts that differ between kinds. O is the pointer to the API type of the objects, P
// the type of the plan that Decide makes. Kinds of the API group toolkit.lanyard.dev embed
// [Toolkit] for the parts that they share.
type Kind[O object.Object, P any] interface {
	Definition[O]

	// Decide makes a plan from the spec and the call's identity. It follows the rules of
	// object.Kind.Decide.
	Decide(ctx context.Context, o O, call access.Call) (P, error)
	// Act carries out the plan with the credential of the identity in call. It follows the rules of
	// object.Kind.Act.
	Act(ctx context.Context, o O, plan P, call access.Call) (news string, err error)
	// Report writes the kind's own conditions after each Decide and Act. It returns the message of
	// the condition Ready. It follows the rules of object.Kind.Report.
	Report(ctx context.Context, o O, outcome object.Outcome) (found string, err error)
	// Finalize follows the rules of object.Kind.Finalize.
	Finalize(ctx context.Context, o O) error
}

// Definition describes the objects of a kind.
type Definition[O object.Object] interface {
	// View returns what package object must know about an object. The [Reconciler] adds the
	// dependency on the object's identity.
	View(o O) object.View
	// Subject returns the subject in an object's spec; zero if the spec has no valid subject. A
	// change of the subject's ServiceAccount or identity causes a reconciliation of the object.
	Subject(o O) auth.Subject
	// Identify returns the identity whose credential the object uses, or refuses the spec. It may
	// read, but changes nothing.
	Identify(ctx context.Context, o O) (spec.Identity, error)
	// Explain follows the rules of object.Definition.Explain.
	Explain(err error) (object.Failure, bool)
}

// Shared has the parts that several reconcilers of one controller share. It is for kinds whose
// objects act as a tenant: they use the credential of an identity in their spec.
type Shared struct {
	// Shared has the parts that the reconcilers of all kinds use, including those of kinds that do
	// not act as a tenant. Required.
	*object.Shared

	// Rules turn the identity fields of a [Toolkit]'s objects into an identity or a refusal.
	Rules spec.Rules
	// Renew drops the tokens of a subject, so that the next use gets a new token. It may be called
	// any number of times. If Renew is nil, each implementation of [Kind] must itself get new
	// tokens on request.
	Renew func(auth.Subject)
	// Durations records how long Act took; see [NewDurations]. If Durations is nil, nothing is
	// measured.
	Durations *prometheus.HistogramVec
}

// NewDurations makes the histogram lanyard_fetch_duration_seconds.
func NewDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lanyard_fetch_duration_seconds",
		Help:    "Time in seconds that fetches took, from the credential to the artifact or scan, by kind and outcome (success, or the reason of the failure).",
		Buckets: prometheus.ExponentialBuckets(0.01, 3, 12), // 10 ms … 30 min
	}, []string{"kind", "outcome"})
}

// Reconciler reconciles the objects of one kind.
type Reconciler[O object.Object, P any] = object.Reconciler[O, task[P]]

// New returns the reconciler of the kind that the given [kinds.Kind] describes. The kind's objects
// are of type O.
func New[O object.Object, P any](shared *Shared, entry kinds.Kind, kind Kind[O, P]) *Reconciler[O, P] {
	return object.New(shared.Shared, entry.Kind, &frame[O, P]{kind, shared, entry})
}

// frame implements object.Kind with the methods of a [Kind].
type frame[O object.Object, P any] struct {
	Kind[O, P]

	shared *Shared
	entry  kinds.Kind
}

// task is what Decide hands to Act: the plan that the kind made, and the access.Call with which the
// kind's Act carries out the plan.
type task[P any] struct {
	plan P
	call access.Call
}

// Empty implements object.Definition.
func (f *frame[O, P]) Empty() (O, client.ObjectList) { return f.entry.New().(O), f.entry.NewList() }

// View implements object.Definition.
func (f *frame[O, P]) View(o O) object.View {
	view := f.Kind.View(o)
	if subject := f.Subject(o); !subject.IsZero() {
		view.DependsOn = append(view.DependsOn, object.DependencyOn(subject))
	}
	return view
}

// Decide implements object.Kind. It resolves the identity first, because the kind needs the
// identity to make its plan.
func (f *frame[O, P]) Decide(ctx context.Context, o O) (task[P], error) {
	if err := checkBounds(f.Kind.View(o)); err != nil {
		return task[P]{}, err
	}
	identity, err := f.Identify(ctx, o)
	if err != nil {
		return task[P]{}, err
	}
	kind, namespace, name := f.entry.Kind, o.GetNamespace(), o.GetName()
	call := access.Call{
		Object:   auth.InvolvedObject{Kind: kind, Namespace: namespace, Name: name, Operation: "reconcile"},
		Self:     auth.ObjectReference{APIVersion: f.entry.GroupVersion().String(), Kind: kind, Namespace: namespace, Name: name, UID: string(o.GetUID())},
		Identity: identity,
		RetryNow: object.RetryNow(o),
	}
	plan, err := f.Kind.Decide(ctx, o, call)
	return task[P]{plan, call}, err
}

// Act implements object.Kind.
func (f *frame[O, P]) Act(ctx context.Context, o O, t task[P], _ func(context.Context) error) (object.News, error) {
	began := time.Now()
	if f.shared.Renew != nil && object.RenewalRequested(o) && f.Kind.View(o).Renewable {
		f.shared.Renew(t.call.Identity.Subject)
	}
	news, err := f.Kind.Act(ctx, o, t.plan, t.call)
	if f.shared.Durations != nil {
		outcome := "success"
		if err != nil {
			outcome = object.Explain(err, f.Explain).Reason
		}
		f.shared.Durations.WithLabelValues(f.entry.Kind, outcome).Observe(time.Since(began).Seconds())
	}
	return object.News{Reason: news}, err
}

// Bounds of the schemas. checkBounds applies them again, because an object may have been stored
// before the schema had the bound.
const (
	minInterval = time.Second
	maxInterval = 8760 * time.Hour
	minTimeout  = time.Second
)

// checkBounds refuses an interval or a timeout that the schema does not allow.
func checkBounds(v object.View) error {
	if d := v.Interval; d < minInterval || d > maxInterval {
		return object.Invalid("spec.interval", "write a duration from 1s to 8760h, such as 5m", "%s is out of bounds", d)
	}
	if v.Timeout != nil && (v.Timeout.Duration < minTimeout || v.Timeout.Duration > object.MaxTimeout) {
		return object.Invalid("spec.timeout", "write a duration from 1s to 30m, such as 60s", "%s is out of bounds", v.Timeout.Duration)
	}
	return nil
}
