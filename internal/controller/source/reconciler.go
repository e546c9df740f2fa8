package source

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
)

// Shared is what the reconcilers of one controller share. All fields are required.
type Shared struct {
	// Client reads the sources from memory and patches them and their status.
	Client client.Client
	// Recorder tells people.
	Recorder events.EventRecorder
	// Rules turn an object's identity fields into an identity or a refusal.
	Rules spec.Rules
	// Accounts tell when a ServiceAccount changes.
	Accounts auth.Accounts
	// Metrics are kept for objects.
	Metrics Metrics
	// Artifacts are the store, and who has something in it.
	Artifacts *Artifacts
	// External publishes artifacts to Flux.
	External *externalartifact.Publisher

	notices notices    // of all kinds
	kinds   []observed // fixed before the manager starts
}

// Metrics are kept for objects; *cache.Cache is one.
type Metrics interface {
	// Forget removes those of an object that is gone.
	Forget(kind, namespace, name string)
}

// Reconciler reconciles the sources of one kind.
type Reconciler[O client.Object, P any] struct {
	shared   *Shared
	name     string // of the kind
	kind     Kind[O, P]
	workers  workers
	failures failures
	took     *prometheus.HistogramVec // of fetches, by outcome
}

// New makes the reconciler of the kind with that name, such as OCIRepository, and has the shared artifacts know its objects.
func New[O client.Object, P any](shared *Shared, name string, kind Kind[O, P]) *Reconciler[O, P] {
	r := &Reconciler[O, P]{shared: shared, name: name, kind: kind, took: newDurations(name)}
	shared.Artifacts.register(r)
	shared.kinds = append(shared.kinds, r)
	return r
}

// crowdedPause is how long an object waits when its namespace has its share of the workers and nobody wakes it, as when the
// one that was woken in its place is gone.
const crowdedPause = time.Minute

// Reconcile implements reconcile.Reconciler. An error that people can act on becomes a condition and is not returned.
func (r *Reconciler[O, P]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o, _ := r.kind.Empty()
	if err := r.shared.Client.Get(ctx, req.NamespacedName, o); apierrors.IsNotFound(err) {
		r.forget(req.NamespacedName) // it is gone, or another shard's
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if !o.GetDeletionTimestamp().IsZero() {
		return reconcile.Result{}, r.finalize(ctx, o)
	}
	if !r.workers.enter(req) {
		return reconcile.Result{RequeueAfter: jitter(crowdedPause)}, nil
	}
	defer r.workers.leave(req)
	result, err := r.reconcile(ctx, o)
	if ctx.Err() == nil {
		r.shared.Artifacts.try(r.owner(o))
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: jitter(time.Second)}, nil // the object changed meanwhile: begin anew
	}
	return result, client.IgnoreNotFound(err)
}

func (r *Reconciler[O, P]) reconcile(ctx context.Context, o O) (reconcile.Result, error) {
	if err := r.hold(ctx, o); err != nil {
		return reconcile.Result{}, err
	}
	view := r.kind.View(o)
	stored := r.shared.Artifacts.stored(ctx, r.owner(o), view.Artifact)
	if view.Suspend {
		return r.suspended(ctx, o, stored)
	}
	work, refusal := r.decide(ctx, o, view, stored)
	before, failing := clone(o), ready(view.Status).Status == metav1.ConditionFalse
	if refusal == nil && o.GetGeneration() != view.Status.ObservedGeneration {
		markProgressing(o, view.Status)
	}
	announce(o, view)
	if err := r.patchStatus(ctx, before, o); err != nil {
		return reconcile.Result{}, err
	}

	before, view = clone(o), r.kind.View(o)
	view.Status.LastHandledReconcileAt = requested(o)
	err := refusal
	if refusal == nil {
		err = r.time(func() error { return work(ctx) })
	} else {
		view.Status.Identity = nil
	}
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err() // the controller is ending; what was stored is found again or collected
	}
	fetched := err == nil
	var offer externalartifact.Offer
	if !fetched {
		offer.Failed = explain(err, r.kind.Explain).Reason
	}
	if unpublished := r.publish(ctx, o, offer); fetched {
		err = unpublished
	}
	if err != nil {
		return r.failed(ctx, before, o, err, stored || fetched && r.kind.View(o).Artifact != nil)
	}
	return r.succeeded(ctx, before, o, failing)
}

// suspended fetches nothing. What is published follows the spec all the same: it is of what was fetched before.
func (r *Reconciler[O, P]) suspended(ctx context.Context, o O, stored bool) (reconcile.Result, error) {
	before, view := clone(o), r.kind.View(o)
	markSuspended(o, view, stored)
	announce(o, view)
	if err := r.patchStatus(ctx, before, o); err != nil {
		return reconcile.Result{}, err
	}
	before = clone(o)
	offer := externalartifact.Offer{Suspended: true}
	if !stored {
		offer.Failed = meta.ReasonSuspended // nobody fetches what the store has lost
	}
	unpublished := r.publish(ctx, o, offer)
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err()
	}
	if err := r.patchStatus(ctx, before, o); err != nil {
		return reconcile.Result{}, err
	}
	if unpublished != nil {
		return reconcile.Result{RequeueAfter: r.pause(o, explain(unpublished, r.kind.Explain))}, nil
	}
	r.failures.over(client.ObjectKeyFromObject(o))
	return reconcile.Result{}, nil
}

// decide says what is to be done for an object that is not suspended, or why nothing can be.
func (r *Reconciler[O, P]) decide(ctx context.Context, o O, view View, stored bool) (work func(context.Context) error, refusal error) {
	limit, err := view.limit()
	if err != nil {
		return nil, err
	}
	plan, err := r.kind.Decide(o, stored)
	if err != nil {
		return nil, err
	}
	identity, err := spec.Resolve(ctx, view.Fields, r.shared.Rules)
	if err != nil {
		return nil, err
	}
	call := Call{
		Object:   auth.InvolvedObject{Kind: r.name, Namespace: o.GetNamespace(), Name: o.GetName(), Operation: "reconcile"},
		Owner:    r.owner(o),
		Identity: identity,
		RetryNow: retryNow(o, view.Status),
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return nameOwner(identity, r.kind.Fetch(ctx, o, plan, call))
	}, nil
}

// nameOwner says whose fault it is that there is no identity, where the object does not name the subject.
func nameOwner(identity spec.Identity, err error) error {
	code := auth.CodeOf(err)
	missing := code == auth.CodeIdentityMissing
	switch {
	case identity.Defaulted && (missing || code == auth.CodeSubjectNotFound):
		return fmt.Errorf("spec.serviceAccountName is not set, so --default-service-account counts: %w", err)
	case identity.Subject.Kind() == auth.KindController && (missing || code == auth.CodeIdentityInvalid):
		return &ownError{err}
	}
	return err
}

// hold adds the finalizer before there is anything to clean up. Kinds of which nothing is kept have none: neither a broken store nor a
// controller that was removed keeps their objects.
func (r *Reconciler[O, P]) hold(ctx context.Context, o O) error {
	before := clone(o)
	if !r.kind.View(o).Stores || !controllerutil.AddFinalizer(o, meta.Finalizer) {
		return nil
	}
	return r.shared.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// finalize removes what was kept for the object and lets it go.
func (r *Reconciler[O, P]) finalize(ctx context.Context, o O) error {
	before := clone(o)
	if !controllerutil.RemoveFinalizer(o, meta.Finalizer) {
		return nil
	}
	if err := r.shared.Artifacts.remove(r.owner(o)); err != nil {
		// Whoever waits for the deletion, or for the namespace's, looks at the object.
		r.tell(o, corev1.EventTypeWarning, meta.ReasonStorageFailed, "the object stays until its artifacts are removed: "+err.Error())
		return err
	}
	err := r.shared.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}

// forget removes what is remembered of an object.
func (r *Reconciler[O, P]) forget(object client.ObjectKey) {
	r.failures.forget(object)
	r.shared.Metrics.Forget(r.name, object.Namespace, object.Name)
}

// succeeded says that all is well. failing: it was not, before a new generation was looked at.
func (r *Reconciler[O, P]) succeeded(ctx context.Context, before, o O, failing bool) (reconcile.Result, error) {
	was, is := r.kind.View(before), r.kind.View(o)
	markReady(o, is)
	r.failures.over(client.ObjectKeyFromObject(o))
	if err := r.patchStatus(ctx, before, o); err != nil {
		return reconcile.Result{}, err
	}
	switch message := ready(is.Status).Message; {
	case is.Artifact != nil && (was.Artifact == nil || was.Artifact.Revision != is.Artifact.Revision || was.Artifact.Digest != is.Artifact.Digest):
		r.tell(o, corev1.EventTypeNormal, "NewArtifact", message)
	case failing:
		r.tell(o, corev1.EventTypeNormal, meta.ReasonSucceeded, message)
	}
	return reconcile.Result{RequeueAfter: jitter(is.Interval.Duration)}, nil
}

func (r *Reconciler[O, P]) failed(ctx context.Context, before, o O, cause error, stored bool) (reconcile.Result, error) {
	f := explain(cause, r.kind.Explain)
	view := r.kind.View(o)
	markFailed(o, view, f, stored)
	withheld := r.withholds(before, o, f)
	if !withheld {
		if err := r.patchStatus(ctx, before, o); err != nil {
			return reconcile.Result{}, err
		}
	}
	words := []any{"reason", f.Reason, "stalled", f.Stalled, "message", f.Message}
	was, is := ready(r.kind.View(before).Status), ready(view.Status)
	if was.Status != is.Status || was.Reason != is.Reason {
		log.FromContext(ctx).Error(nil, "not fetched", words...) // an error, so that no level of the log hides all of it
		r.tell(o, corev1.EventTypeWarning, f.Reason, f.Message)
	} else { // other words alone are no news
		log.FromContext(ctx).Info("still not fetched", words...)
	}
	if f.Stalled {
		r.failures.over(client.ObjectKeyFromObject(o))
		return reconcile.Result{}, nil
	}
	pause := r.pause(o, f)
	if withheld && f.RetryAfter == 0 {
		pause = min(pause, jitter(rewordPause)) // the words are written then
	}
	return reconcile.Result{RequeueAfter: pause}, nil
}

// pause is how long a failure waits to be repeated. A pause that was asked for is not cut short.
func (r *Reconciler[O, P]) pause(o O, f Failure) time.Duration {
	pause := r.failures.next(client.ObjectKeyFromObject(o))
	if f.AtInterval {
		pause = max(pause, r.kind.View(o).Interval.Duration)
	}
	return max(f.RetryAfter, jitter(pause))
}

// patchStatus writes the status if it differs; nothing else of the object is changed here. The patch holds only if nobody has changed
// the object meanwhile: a status speaks of the spec that was read.
func (r *Reconciler[O, P]) patchStatus(ctx context.Context, before, o O) error {
	if equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	err := r.shared.Client.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		r.failures.wrote(client.ObjectKeyFromObject(o))
	}
	return err
}

// withholds reports whether a failure in other words alone is left for a later attempt to write. A stalled object has none.
func (r *Reconciler[O, P]) withholds(before, o O, f Failure) bool {
	return !f.Stalled && !equality.Semantic.DeepEqual(before, o) && r.failures.fresh(client.ObjectKeyFromObject(o)) && r.reworded(before, o)
}

// reworded reports whether nothing differs but messages of conditions.
func (r *Reconciler[O, P]) reworded(before, o O) bool {
	before, o = clone(before), clone(o)
	for _, status := range []*meta.Status{r.kind.View(before).Status, r.kind.View(o).Status} {
		for i := range status.Conditions {
			status.Conditions[i].Message = ""
		}
	}
	return equality.Semantic.DeepEqual(before, o)
}

// tell makes an event, if the object and its namespace have not made too many.
func (r *Reconciler[O, P]) tell(o O, kind, reason, message string) {
	if r.shared.notices.take(r.owner(o)) {
		r.shared.Recorder.Eventf(o, nil, kind, reason, "Fetch", "%s", clip(message, maxNote))
	}
}

// owner is the object as the store knows it.
func (r *Reconciler[O, P]) owner(o O) store.Object {
	return store.Object{Kind: strings.ToLower(r.name), Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}

func clone[O client.Object](o O) O { return o.DeepCopyObject().(O) } //nolint:forcetypeassert // a copy is of the same type

// jitter spreads a pause by a twentieth either way, so that objects made together do not stay together.
func jitter(d time.Duration) time.Duration {
	//nolint:gosec // spreads load; not a secret.
	return d + time.Duration((rand.Float64()-0.5)/10*float64(d))
}
