package object

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Constants for package object_test, which tests the [Reconciler] with a toy kind.
const (
	RewordPause      = rewordPause
	LastPause        = lastPause
	ObjectNotices    = objectNotices
	NamespaceNotices = namespaceNotices
	ProgressAfter    = progressAfter
	ObjectWrites     = objectWrites
	NamespaceWrites  = namespaceWrites
	Stride           = stride
)

// Together exports together.
func Together(pause time.Duration) time.Duration { return together(pause) }

// Noticed returns the numbers of objects and of namespaces whose events are remembered.
func (s *Shared) Noticed() (objects, namespaces int) {
	return len(s.notices.objects), len(s.notices.namespaces)
}

// Wrote returns the numbers of objects and of namespaces whose status writes are remembered.
func (s *Shared) Wrote() (objects, namespaces int) {
	return len(s.writes.objects), len(s.writes.namespaces)
}

// Dependents returns the objects that a change of d wakes.
func (r *Reconciler[O, P]) Dependents(ctx context.Context, d Dependency) []reconcile.Request {
	return r.dependents(ctx, d)
}

// Index returns the keys of the object's dependencies, for the index.
func (r *Reconciler[O, P]) Index(o client.Object) []string { return r.dependencies(o) }

// WatchChanges queues the dependents of each dependency that changes.
func (r *Reconciler[O, P]) WatchChanges(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return r.watchChanges(ctx, queue)
}

// EndOutdatedWork returns the event handler that ends outdated work on changed or deleted objects.
func (r *Reconciler[O, P]) EndOutdatedWork() handler.EventHandler { return r.endOutdatedWork() }

// StartCreated returns the event handler that queues objects that are new or in the watch's initial
// list.
func (r *Reconciler[O, P]) StartCreated() handler.EventHandler { return r.startCreated() }

// UnderWork returns the number of objects that are being worked on.
func (r *Reconciler[O, P]) UnderWork() int {
	r.underWork.mu.Lock()
	defer r.underWork.mu.Unlock()
	return len(r.underWork.works)
}

// DependentsOf returns a function that maps a dependency of the given kind to its dependents.
func (r *Reconciler[O, P]) DependentsOf(kind string) handler.MapFunc { return r.dependentsOf(kind) }

// StartWorkers sets the number of workers and the function wake, as the manager does when it
// starts.
func (r *Reconciler[O, P]) StartWorkers(number int, wake func(reconcile.Request)) {
	r.workers.start(number, wake)
}

// Enter takes a worker for the object, if one is free.
func (r *Reconciler[O, P]) Enter(object reconcile.Request) bool { return r.workers.enter(object) }

// Leave gives the object's worker back.
func (r *Reconciler[O, P]) Leave(object reconcile.Request) { r.workers.leave(object) }
