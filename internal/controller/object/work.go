package object

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Causes for which work ends early. The code that ends the work also queues the object again.
var (
	errObjectChanged     = errors.New("the object was changed or deleted meanwhile")
	errDependencyChanged = errors.New("what the object depends on was changed or deleted meanwhile")
)

// superseded reports whether the work of ctx was ended because it is outdated.
func superseded(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, errObjectChanged) || errors.Is(cause, errDependencyChanged)
}

// underWork tracks the objects that are being worked on, so that outdated work ends at once. Work
// may take until spec.timeout, since a tenant's server may be slow on purpose. Without an early
// end, a credential could be used for longer than its account allows, and a deleted object would
// stay until the timeout. The zero value is ready for use.
type underWork struct {
	mu    sync.Mutex // guards works and the fields of each work; never held during I/O
	works map[client.ObjectKey]*work
}

// work is a running reconciliation of one object. The queue gives an object to one worker at a
// time.
type work struct {
	cancel     context.CancelCauseFunc
	uid        types.UID // UID of the object as it was read; empty until then
	generation int64
}

// begin registers work on an object before the object is read, so that no later change is missed.
// The context ends when the work is outdated. The caller calls end when the work is done.
func (u *underWork) begin(ctx context.Context, object client.ObjectKey) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.works == nil {
		u.works = map[client.ObjectKey]*work{}
	}
	w := &work{cancel: cancel}
	u.works[object] = w
	return ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.works[object] == w {
			delete(u.works, object)
		}
		cancel(nil)
	}
}

// read is called when a worker has read o. It stores o's UID and generation in the work on o.
func (u *underWork) read(o client.Object) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if w := u.works[client.ObjectKeyFromObject(o)]; w != nil {
		w.uid, w.generation = o.GetUID(), o.GetGeneration()
	}
}

// supersede ends outdated work: work on an older generation than o's, or on an earlier object of
// the same name. Work whose generation is not known yet ends too, because the generation may be
// older. supersede reports whether there was such work.
func (u *underWork) supersede(o client.Object) bool {
	return u.stop(client.ObjectKeyFromObject(o), errObjectChanged, func(w *work) bool {
		return w.uid != o.GetUID() || w.generation < o.GetGeneration()
	})
}

// abandon ends the work on an object, outdated or not, and reports whether there was any. The
// work's context gets the cause.
func (u *underWork) abandon(object client.ObjectKey, cause error) bool {
	return u.stop(object, cause, func(*work) bool { return true })
}

func (u *underWork) stop(object client.ObjectKey, cause error, outdated func(*work) bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.works[object]
	if w == nil || !outdated(w) {
		return false
	}
	w.cancel(cause)
	return true
}

// endOutdatedWork handles the watch events of the reconciled objects. It first ends an object's
// work, and then adds the object to the queue. The queue holds the request until the work is done.
func (r *Reconciler[O, P]) endOutdatedWork() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	request := func(o client.Object) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if r.underWork.supersede(e.ObjectNew) {
				q.Add(request(e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			if r.underWork.abandon(client.ObjectKeyFromObject(e.Object), errObjectChanged) {
				q.Add(request(e.Object))
			}
		},
	}
}
