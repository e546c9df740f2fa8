package object

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What the tests of the frame with a toy kind, which are outside the package, look at.
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

// Together is when an object at rest is due after a pause.
func Together(pause time.Duration) time.Duration { return together(pause) }

// Noticed are the numbers of objects and of namespaces whose events are remembered.
func (s *Shared) Noticed() (objects, namespaces int) {
	return len(s.notices.objects), len(s.notices.namespaces)
}

// Wrote are the numbers of objects and of namespaces whose status writes are remembered.
func (s *Shared) Wrote() (objects, namespaces int) {
	return len(s.writes.objects), len(s.writes.namespaces)
}

// Dependents are the objects that a change of d wakes.
func (r *Reconciler[O, P]) Dependents(ctx context.Context, d Dependency) []reconcile.Request {
	return r.dependents(ctx, d)
}

// Index is the index of dependencies.
func (r *Reconciler[O, P]) Index(o client.Object) []string { return r.dependencies(o) }

// WatchChanges is the source of requests of dependencies that changed.
func (r *Reconciler[O, P]) WatchChanges(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return r.watchChanges(ctx, queue)
}

// EndOutdatedWork handles the watch's events of the objects.
func (r *Reconciler[O, P]) EndOutdatedWork() handler.EventHandler { return r.endOutdatedWork() }

// StartCreated handles the creations of objects.
func (r *Reconciler[O, P]) StartCreated() handler.EventHandler { return r.startCreated() }

// UnderWork is the number of objects that are being worked on.
func (r *Reconciler[O, P]) UnderWork() int {
	r.underWork.mu.Lock()
	defer r.underWork.mu.Unlock()
	return len(r.underWork.works)
}

// DependentsOf is the watch for new dependencies.
func (r *Reconciler[O, P]) DependentsOf(kind string) handler.MapFunc { return r.dependentsOf(kind) }

// StartWorkers is what the manager does when it starts.
func (r *Reconciler[O, P]) StartWorkers(number int, wake func(reconcile.Request)) {
	r.workers.start(number, wake)
}

// Enter takes a worker, if there is room.
func (r *Reconciler[O, P]) Enter(object reconcile.Request) bool { return r.workers.enter(object) }

// Leave gives it back.
func (r *Reconciler[O, P]) Leave(object reconcile.Request) { r.workers.leave(object) }
