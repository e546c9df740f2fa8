package object

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/memory"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// Shared has the parts that all reconcilers of one controller use together. All exported fields
// except Metrics are required.
type Shared struct {
	// Client reads the objects from the cache, and patches them and their status.
	Client client.Client
	// Live lists objects at the API server, without the cache. The cache has only stubs of objects
	// that are too large for it.
	Live client.Reader
	// Recorder records events.
	Recorder events.EventRecorder
	// Forgetter learns which objects are gone; nil if nobody needs to know.
	Forgetter Forgetter
	// Elected is closed when this replica begins to reconcile.
	Elected <-chan struct{}
	// Dependencies says how the reconcilers learn that a dependency was created, changed or
	// deleted.
	Dependencies Dependencies

	// notices limits the events of the objects of all kinds.
	notices notices
	// writes limits the status writes of the objects of all kinds.
	writes writes
	// memory limits the memory that the fetches of the objects of all kinds use.
	memory reserve.Pool
	// counts has one function per kind. It does not change after the manager starts.
	counts []func(ctx context.Context, objects map[state]int) error
}

// Forgetter remembers something of single objects. For example, *cache.Cache has their metrics.
type Forgetter interface {
	// Forget removes all that is remembered of an object that is gone.
	Forget(kind, namespace, name string)
}

// Reconciler reconciles the objects of one kind.
type Reconciler[O Object, P any] struct {
	shared    *Shared
	name      string // the kind's name
	kind      Kind[O, P]
	workers   workers
	underWork underWork
	failures  failures
}

// New returns the reconciler of a kind. The name is the kind's name, such as OCIRepository.
func New[O Object, P any](shared *Shared, name string, kind Kind[O, P]) *Reconciler[O, P] {
	r := &Reconciler[O, P]{shared: shared, name: name, kind: kind}
	shared.counts = append(shared.counts, r.count)
	return r
}

// turn is the state of one reconciliation of an object. The phases of the reconciliation share it.
type turn[O Object, P any] struct {
	before O // the object as it was last read or written
	o      O // the object as it will be written
	key    client.ObjectKey
	view   View
	was    metav1.Condition // the condition Ready at the beginning
	isNew  bool             // this generation was not reconciled before
	asked  bool             // somebody changed the object or asked for its reconciliation
	plan   P
	news   News
	cause  error // why the spec is not fulfilled; nil if it is fulfilled
	result reconcile.Result

	refused bool // cause comes from Decide, so Act was not called
}

// Judge calls the kind's Decide for an object and returns the refusal; nil if Decide made a plan.
// Judge changes nothing, and the conformance suite of kinds checks that.
func (r *Reconciler[O, P]) Judge(ctx context.Context, o O) error {
	_, err := r.kind.Decide(ctx, o)
	return err
}

// Reconcile implements reconcile.Reconciler. An error that people can act on becomes a condition
// and is not returned.
func (r *Reconciler[O, P]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, end := r.underWork.begin(ctx, req.NamespacedName)
	defer end()
	result, err := r.reconcile(ctx, req)
	if superseded(ctx) {
		return reconcile.Result{}, nil // the code that ended the work also queued the object again
	}
	return result, err
}

func (r *Reconciler[O, P]) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	entered := r.workers.enter(req)
	if entered {
		defer r.workers.leave(req)
	}
	o, _ := r.kind.Empty()
	if err := r.shared.Client.Get(ctx, req.NamespacedName, o); apierrors.IsNotFound(err) {
		r.forget(req.NamespacedName) // the object is gone, or belongs to another shard
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	r.underWork.read(o)
	deleted := !o.GetDeletionTimestamp().IsZero()
	if !entered && (!deleted || r.kind.View(o).SlowFinalizer) {
		return reconcile.Result{}, nil // the object is queued again when it may be reconciled
	}
	if deleted { // a deletion usually needs no worker, so slow work cannot delay it
		return again(r.finalize(ctx, o))
	}
	if pause := r.shared.writes.delay(r.spender(o)); pause > 0 && !asked(o) {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	t := &turn[O, P]{
		before: clone(o), o: o, key: req.NamespacedName, view: r.kind.View(o), was: ready(o.GetStatus()), isNew: isNew(o), asked: asked(o),
	}
	phases := []func(context.Context, *turn[O, P]) error{
		r.addFinalizer, // add it before there is anything to clean up
		r.decide,       // make a plan, or refuse the spec
		r.act,          // carry out the plan
		r.report,       // write the result to the status
	}
	if memory.Refused(o) != nil {
		phases = []func(context.Context, *turn[O, P]) error{r.refuse}
	}
	for _, phase := range phases {
		if err := phase(ctx, t); err != nil {
			return again(client.IgnoreNotFound(err))
		}
	}
	return t.result, nil
}

// again returns the result of a reconciliation that ended with an error, or with nil. After a
// conflict, the reconciliation begins again in a second: somebody has changed the object meanwhile.
func again(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: jitter(time.Second)}, nil
	}
	return reconcile.Result{}, err
}

// addFinalizer adds the finalizer if the object has data that is stored elsewhere. Other objects
// get no finalizer, so neither a broken store nor a removed controller can prevent their deletion.
func (r *Reconciler[O, P]) addFinalizer(ctx context.Context, t *turn[O, P]) error {
	if !t.view.Finalizer || !controllerutil.AddFinalizer(t.o, meta.Finalizer) {
		return nil
	}
	if err := r.shared.Client.Patch(ctx, t.o, onlyIfUnchanged(t.before)); err != nil {
		return err
	}
	t.before = clone(t.o)
	return nil
}

// decide lets the kind make a plan, unless the object is suspended.
func (r *Reconciler[O, P]) decide(ctx context.Context, t *turn[O, P]) error {
	if t.view.Suspend {
		return nil
	}
	t.plan, t.cause = r.kind.Decide(ctx, t.o)
	t.refused = t.cause != nil
	return ctx.Err()
}

// act lets the kind carry out the plan, if there is one. If the controller ends while Act runs, no
// status is written. An artifact that Act has already stored is found again later, or collected as
// garbage.
func (r *Reconciler[O, P]) act(ctx context.Context, t *turn[O, P]) error {
	if t.view.Suspend || t.cause != nil {
		return nil
	}
	timely, cancel := context.WithTimeout(ctx, timeoutOf(t.view))
	defer cancel()
	limited, end := context.WithCancelCause(timely)
	defer end(nil)
	request := reconcile.Request{NamespacedName: t.key}
	limited, closed := r.shared.memory.Open(limited, t.key.Namespace, end)
	defer closed()
	acted := sync.OnceFunc(r.showProgress(ctx, t))
	save := func(ctx context.Context) error {
		acted()                                         // otherwise the timer could write the object at the same time
		*t.o.GetStatus() = *clone(t.before).GetStatus() // keep the progress that the status shows
		return r.save(ctx, t)
	}
	r.workers.endable(request, end)
	t.news, t.cause = r.kind.Act(limited, t.o, t.plan, save)
	r.workers.endable(request, nil)
	switch why := context.Cause(limited); {
	case t.cause == nil:
	case errors.Is(why, errCrowdedOut), errors.Is(why, reserve.ErrEnded):
		t.cause = &endedEarly{t.cause, why}
	case limited.Err() != nil && errors.Is(t.cause, context.DeadlineExceeded):
		t.cause = OutOfTime(t.cause)
	}
	acted()
	t.view = r.kind.View(t.o) // read again: Act may have changed the interval or other times
	return ctx.Err()
}

// report calls the kind's Report and writes the status.
func (r *Reconciler[O, P]) report(ctx context.Context, t *turn[O, P]) error {
	outcome := Outcome{Suspended: t.view.Suspend, Save: func(ctx context.Context) error { return r.save(ctx, t) }}
	if !t.view.Suspend {
		t.o.GetStatus().LastHandledReconcileAt = requested(t.o)
	}
	if t.cause != nil {
		f := r.explain(t.cause)
		outcome.Reason, outcome.Message, outcome.Err, outcome.Refused = f.Reason, f.Message, t.cause, t.refused
	}
	found, err := r.kind.Report(ctx, t.o, outcome)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if t.cause == nil {
		t.cause = err
	}
	switch {
	case t.view.Suspend:
		return r.suspended(ctx, t, found)
	case t.cause != nil:
		return r.failed(ctx, t)
	default:
		return r.succeeded(ctx, t, found)
	}
}

// suspended writes the status of a suspended object.
func (r *Reconciler[O, P]) suspended(ctx context.Context, t *turn[O, P], found string) error {
	markSuspended(t.o, found)
	if err := r.save(ctx, t); err != nil {
		return err
	}
	if t.cause != nil {
		t.result.RequeueAfter = r.pause(t, r.explain(t.cause))
		return nil //nolint:nilerr // the object is tried again after its pause
	}
	r.failures.reset(t.key)
	return nil
}

// succeeded writes the status of an object whose spec is fulfilled. It emits an event if the result
// is new.
func (r *Reconciler[O, P]) succeeded(ctx context.Context, t *turn[O, P], found string) error {
	settle(t.o, metav1.ConditionTrue, meta.ReasonSucceeded, found)
	r.failures.reset(t.key)
	if err := r.save(ctx, t); err != nil {
		return err
	}
	if err := r.endRenewal(ctx, t); err != nil {
		return err
	}
	switch {
	case t.news.Reason != "":
		r.emitEvent(t.o, corev1.EventTypeNormal, t.news.Reason, cmp.Or(t.news.Note, found))
	case t.was.Status == metav1.ConditionFalse:
		r.emitEvent(t.o, corev1.EventTypeNormal, meta.ReasonSucceeded, found)
	}
	r.warn(t)
	t.result.RequeueAfter = together(jitter(t.view.Interval))
	return nil
}

// warn emits the event of a warning.
func (r *Reconciler[O, P]) warn(t *turn[O, P]) {
	if t.news.Warning.Reason != "" {
		r.emitEvent(t.o, corev1.EventTypeWarning, t.news.Warning.Reason, t.news.Warning.Note)
	}
}

// endRenewal removes the annotation that requests new tokens, after Act has got them. The patch
// contains only this annotation, because the cache does not have the object's other annotations.
func (r *Reconciler[O, P]) endRenewal(ctx context.Context, t *turn[O, P]) error {
	if !t.view.Renewable || !RenewalRequested(t.o) {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null},"resourceVersion":%q}}`, meta.OperationAnnotation, t.o.GetResourceVersion())
	if err := r.shared.Client.Patch(ctx, t.o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	r.shared.writes.count(r.spender(t.o), t.o)
	return nil
}

// failed writes the failure to the status, and plans the next attempt.
func (r *Reconciler[O, P]) failed(ctx context.Context, t *turn[O, P]) error {
	f := r.explain(t.cause)
	markFailed(t.o, f)
	withheld := r.withholds(t, f)
	if !withheld {
		if err := r.save(ctx, t); err != nil {
			return err
		}
	}
	if t.news.Note != "" { // Act has done a part of its work
		r.emitEvent(t.o, corev1.EventTypeNormal, t.news.Reason, t.news.Note)
	}
	r.warn(t)
	if f.Waiting {
		r.failures.reset(t.key)
		t.result.RequeueAfter = f.RetryAfter
		return nil
	}
	words := []any{"reason", f.Reason, "stalled", f.Stalled, "message", f.Message}
	if t.isNew || t.was.Status != metav1.ConditionFalse || t.was.Reason != f.Reason {
		// Log a new failure at level error, so that every setting of the log level shows it once.
		log.FromContext(ctx).Error(nil, "failed", words...)
		r.emitEvent(t.o, corev1.EventTypeWarning, f.Reason, f.Message)
	} else { // a new message alone makes no event
		log.FromContext(ctx).Info("still failing", words...)
	}
	if f.Stalled {
		r.failures.reset(t.key)
		return nil
	}
	pause := r.pause(t, f)
	if withheld && f.RetryAfter == 0 {
		pause = min(pause, jitter(rewordPause)) // retry soon to write the new message
	}
	t.result.RequeueAfter = pause
	return nil
}

// pause returns how long to wait until the next attempt. A pause that the server asked for is not
// cut short.
func (r *Reconciler[O, P]) pause(t *turn[O, P], f Failure) time.Duration {
	pause := r.failures.next(t.key, cmp.Or(t.view.RetryWithin, lastPause))
	if f.AtInterval {
		pause = max(pause, t.view.Interval)
	}
	return max(f.RetryAfter, jitter(pause))
}

// save writes the status if it has changed. It writes nothing else of the object.
func (r *Reconciler[O, P]) save(ctx context.Context, t *turn[O, P]) error {
	// Most often nothing has changed. reflect.DeepEqual finds that out faster than
	// equality.Semantic.
	same := reflect.DeepEqual(t.before, t.o) || equality.Semantic.DeepEqual(t.before, t.o)
	// If the cached version may be outdated, patch anyway: the patch of an outdated version fails
	// with a conflict, and the object is reconciled again.
	if same && !r.failures.outdated(t.key, t.before.GetResourceVersion()) {
		return nil
	}
	if err := r.patchStatus(ctx, t.before, t.o); err != nil {
		return err
	}
	if !t.asked {
		r.shared.writes.count(r.spender(t.o), t.o)
	}
	t.before = clone(t.o)
	return nil
}

// patchStatus writes the status. It fails with a conflict if somebody has changed the object since
// it was read: a status must describe the spec that was read.
func (r *Reconciler[O, P]) patchStatus(ctx context.Context, before, o O) error {
	object := client.ObjectKeyFromObject(o)
	r.failures.writing(object)
	err := r.shared.Client.Status().Patch(ctx, o, onlyIfUnchanged(before))
	if err == nil {
		r.failures.wrote(object, o.GetResourceVersion())
	}
	return err
}

// withholds reports whether to put off writing the status. This is so if only messages would
// change, and the status was written recently. A later attempt writes the messages. A stalled
// object has no later attempt, so its status is always written.
func (r *Reconciler[O, P]) withholds(t *turn[O, P], f Failure) bool {
	return !f.Stalled && !equality.Semantic.DeepEqual(t.before, t.o) && r.failures.fresh(t.key) && reworded(t.before, t.o)
}

// finalize lets the kind remove the object's data, and then removes the finalizer.
func (r *Reconciler[O, P]) finalize(ctx context.Context, o O) error {
	if !controllerutil.ContainsFinalizer(o, meta.Finalizer) {
		return nil
	}
	if memory.Refused(o) != nil {
		// The object is a stub: it has no spec, and may lack finalizers. The kind needs the spec,
		// and the patch below needs all finalizers. So read the whole object.
		var found bool
		var err error
		if o, found, err = r.whole(ctx, o); err != nil {
			return err
		}
		if !found || o.GetDeletionTimestamp().IsZero() {
			return nil // the deleted object is gone; a new object may have the same name
		}
	}
	before := clone(o)
	err := r.callFinalize(ctx, o)
	left, stays := errors.AsType[*LeftoverError](err)
	if err != nil && !stays {
		return r.notFinalized(ctx, before, o, err)
	}
	// If the work has ended, the result of Finalize may be outdated. For example, an AWS identity
	// may be in use by now.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	controllerutil.RemoveFinalizer(o, meta.Finalizer)
	writing := ctx
	if stays {
		// The write may delete the object, and the deletion ends the work. If this also ended the
		// write, the write would seem to have failed. Then no event would say what stays.
		var cancel context.CancelFunc
		writing, cancel = outlasting(ctx, removalGrace)
		defer cancel()
	}
	if err := r.shared.Client.Patch(writing, o, onlyIfUnchanged(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	if stays {
		log.FromContext(ctx).Error(nil, "deleted, but something stays", "reason", meta.ReasonContentStays, "message", left.Message)
		r.emitEvent(o, corev1.EventTypeWarning, meta.ReasonContentStays, left.Message)
	}
	return nil
}

// callFinalize calls the kind's Finalize. Slow work ends after MaxTimeout, or when another namespace
// needs the place or the memory. The timeout of the spec may be too short for a deletion, which has
// to begin anew.
func (r *Reconciler[O, P]) callFinalize(ctx context.Context, o O) error {
	if !r.kind.View(o).SlowFinalizer {
		return r.kind.Finalize(ctx, o)
	}
	timely, cancel := context.WithTimeout(ctx, MaxTimeout)
	defer cancel()
	limited, end := context.WithCancelCause(timely)
	defer end(nil)
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
	limited, closed := r.shared.memory.Open(limited, o.GetNamespace(), end)
	defer closed()
	r.workers.endable(request, end)
	err := r.kind.Finalize(limited, o)
	r.workers.endable(request, nil)
	if err == nil || ctx.Err() != nil {
		return err
	}
	why := context.Cause(limited)
	if errors.Is(why, errCrowdedOut) || errors.Is(why, reserve.ErrEnded) || errors.Is(why, context.DeadlineExceeded) {
		return &endedEarly{err, why}
	}
	return err
}

// timeoutOf returns how long the work on an object may take.
func timeoutOf(view View) time.Duration {
	if view.Timeout == nil {
		return defaultTimeout
	}
	return view.Timeout.Duration
}

// outlasting returns a context that ends later than ctx by the given time. The caller calls cancel
// when the context is no longer needed.
func outlasting(ctx context.Context, grace time.Duration) (_ context.Context, cancel context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, end) })
	return longer, func() {
		stop()
		end()
	}
}

// notFinalized writes to the status why the object is not deleted yet. People who wait for the
// deletion of the object, or of its namespace, look at the status. A Stalled failure is not
// retried: a change of a dependency wakes the object.
func (r *Reconciler[O, P]) notFinalized(ctx context.Context, before, o O, cause error) error {
	f := r.explain(cause)
	news := ready(o.GetStatus()).Reason != f.Reason
	markFailed(o, f)
	if (f.Stalled || news) && !equality.Semantic.DeepEqual(before, o) {
		if err := r.patchStatus(ctx, before, o); err != nil {
			// After a conflict, the cache is behind, and the failure may not be new. So make no
			// event.
			return client.IgnoreNotFound(err)
		}
	}
	if news {
		r.emitEvent(o, corev1.EventTypeWarning, f.Reason, "the object is not deleted yet: "+f.Message)
	}
	if f.Stalled {
		return nil
	}
	return cause
}

// forget removes all that is remembered of an object.
func (r *Reconciler[O, P]) forget(object client.ObjectKey) {
	r.failures.forget(object)
	if r.shared.Forgetter != nil {
		r.shared.Forgetter.Forget(r.name, object.Namespace, object.Name)
	}
}

// emitEvent makes an event, unless the object or its namespace has made too many.
func (r *Reconciler[O, P]) emitEvent(o O, kind, reason, message string) {
	if r.shared.notices.take(r.spender(o)) {
		r.shared.Recorder.Eventf(o, nil, kind, reason, "Reconcile", "%s", clip(message, maxNote))
	}
}

func (r *Reconciler[O, P]) spender(o O) spender {
	return spender{r.name, o.GetNamespace(), o.GetName(), o.GetUID()}
}

func (r *Reconciler[O, P]) explain(err error) Failure { return Explain(err, r.kind.Explain) }

// onlyIfUnchanged returns a patch that writes the caller's changes to an object. The argument
// before is the object without these changes, as last read or written. If somebody else has changed
// the object at the API server since then, the patch fails with a conflict.
func onlyIfUnchanged(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

func clone[O Object](o O) O { return o.DeepCopyObject().(O) } // a copy is of the same type

// jitter lengthens or shortens a pause at random, by a twentieth at most. So objects that were
// created together are not always reconciled together.
func jitter(d time.Duration) time.Duration {
	//nolint:gosec // spreads load; not a secret.
	return d + time.Duration((rand.Float64()-0.5)/10*float64(d))
}

// stride is the unit to which a due time is rounded up. Only the due times of objects that
// succeeded are rounded.
const stride = 250 * time.Millisecond

// together lengthens a pause by up to a [stride]. Objects that are due at nearly the same time are
// then due at exactly the same time. A process that wakes once for several objects takes a third
// less CPU time for each object. A pause of zero stays zero.
func together(pause time.Duration) time.Duration {
	if pause == 0 {
		return 0
	}
	now := time.Now()
	return now.Add(pause + stride).Truncate(stride).Sub(now)
}
