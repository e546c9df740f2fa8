package object

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Dependency is something that objects depend on, such as a ServiceAccount.
type Dependency struct {
	// Kind is the dependency's kind, such as ServiceAccount.
	Kind string
	// Namespace is the dependency's namespace; empty if the dependency is cluster-scoped.
	Namespace string
	// Name is the dependency's name.
	Name string
	// UsedIn is a namespace, or empty. If it is set, a change of the dependency affects only
	// dependents in this namespace and cluster-scoped dependents. If it is empty, a change affects
	// all dependents.
	UsedIn string
}

// DependencyOn returns the dependency on a subject.
func DependencyOn(subject auth.Subject) Dependency {
	return Dependency{Kind: string(subject.Kind()), Namespace: subject.Namespace(), Name: subject.Name()}
}

// Dependencies says how the [Reconciler] learns that a dependency was created, changed or deleted.
type Dependencies struct {
	// Created has the kinds of dependencies that can be created later than the objects that depend
	// on them. It maps each kind to an empty object of that kind. The [Reconciler] watches the
	// metadata of these kinds. When a dependency is created, the [Reconciler] wakes its dependents.
	Created map[string]client.Object
	// Subscribe registers a function that is called after a dependency was changed or deleted. The
	// function must return at once. If the program has a token cache, subscribe the cache before
	// the [Reconciler] calls Subscribe. The cache then learns of a change before the objects that
	// depend on it are reconciled. The field Subscribe is required.
	Subscribe func(changed func(Dependency))
}

// dependencyIndex is the name of the cache's index that finds objects by the key of a dependency.
const dependencyIndex = "dependencies"

func (d Dependency) key() string { return d.Kind + "/" + d.Namespace + "/" + d.Name }

// dependencies returns the keys of the object's dependencies. An object that is too large for the
// cache has no dependencies, because only a change of the object can help. But if the object is
// being deleted, the deletion may wait for a dependency.
func (r *Reconciler[O, P]) dependencies(o client.Object) []string {
	if memory.Refused(o) != nil && o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	var keys []string
	for _, d := range r.kind.View(o.(O)).DependsOn { // the index has only objects of type O
		keys = append(keys, d.key())
	}
	return keys
}

// SetupWithManager registers the reconciler with the manager. The parameter concurrent is the
// number of workers. After half a second, a slow reconciliation frees its worker, and continues
// without a worker. For each worker, up to four reconciliations may continue in this way. So up to
// five reconciliations for each worker may run at once. Call SetupWithManager before the manager
// starts.
func (r *Reconciler[O, P]) SetupWithManager(ctx context.Context, mgr manager.Manager, concurrent int) error {
	empty, _ := r.kind.Empty()
	if err := mgr.GetFieldIndexer().IndexField(ctx, empty, dependencyIndex, r.dependencies); err != nil {
		return fmt.Errorf("index what objects of kind %s depend on: %w", r.name, err)
	}
	setup := builder.ControllerManagedBy(mgr).
		Named(strings.ToLower(r.name)).
		For(empty, builder.WithPredicates(notCreated(), predicate.Or(predicate.GenerationChangedPredicate{}, requestChanged()))).
		Watches(empty, r.endOutdatedWork()).
		Watches(empty, r.startCreated()).
		WatchesRawSource(source.Func(r.watchChanges)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.workers.start(concurrent, queue.Add)
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: goroutines(concurrent), ReconciliationTimeout: MaxTimeout + time.Minute,
			RateLimiter: errorPauses(),
		})
	for kind, created := range r.shared.Dependencies.Created {
		setup = setup.WatchesMetadata(created, handler.EnqueueRequestsFromMapFunc(r.dependentsOf(kind)), builder.WithPredicates(createdOnly()))
	}
	return setup.Complete(r)
}

// startWithin returns how long an object that exists when the controller starts may wait for its
// first reconciliation.
func (r *Reconciler[O, P]) startWithin(e event.CreateEvent) time.Duration {
	o := e.Object.(O) // the watch has only objects of type O
	if asked(o) || RenewalRequested(o) {
		return 0
	}
	return r.kind.View(o).StartWithin
}

// notCreated lets all events through except creations, which startCreated handles.
func notCreated() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
}

// startCreated queues each object that is new or in the watch's initial list. A new object is
// queued at once. An object from the initial list is queued at a random time within the result of
// startWithin. So thousands of objects do not begin at once after a restart.
//
// This handler alone handles creations. An object that is created while handlers are added may be
// new for some handlers, and in the initial list for others. If one handler queued new objects and
// another queued the initial list, both could miss that object.
func (r *Reconciler[O, P]) startCreated() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}
			within := time.Duration(0)
			if e.IsInInitialList {
				within = r.startWithin(e)
			}
			if within > 0 {
				q.AddAfter(request, rand.N(within)) //nolint:gosec // spreads load; not a secret
			} else {
				q.Add(request)
			}
		},
	}
}

// requestChanged returns a predicate that lets an update through in two cases:
//   - An annotation has a new request: to reconcile the object, to get new tokens, or to allow
//     another account.
//   - The object has become too large for the cache, or small enough again; see refusalChanged.
func requestChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			now := requested(e.ObjectNew)
			account := AllowedAccount(e.ObjectNew)
			return now != "" && now != requested(e.ObjectOld) || RenewalRequested(e.ObjectNew) && !RenewalRequested(e.ObjectOld) ||
				account != "" && account != AllowedAccount(e.ObjectOld) || refusalChanged(e.ObjectOld, e.ObjectNew)
		},
	}
}

// createdOnly lets only creations through.
func createdOnly() predicate.Predicate { return predicate.Not(notCreated()) }

// watchChanges subscribes to changes of dependencies, so that their dependents are reconciled. The
// controller calls watchChanges when this replica begins to reconcile. Other subscribers wait until
// the subscribed function returns, so it only puts the dependency into a queue. The queue holds
// each dependency at most once. The dependents are looked up later.
//
//nolint:unparam // controller-runtime takes a function that may fail
func (r *Reconciler[O, P]) watchChanges(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	changed := workqueue.NewTyped[Dependency]()
	context.AfterFunc(ctx, changed.ShutDown)
	r.shared.Dependencies.Subscribe(changed.Add)
	go r.wakeDependents(ctx, changed, queue.Add)
	return nil
}

// wakeDependents takes changed dependencies from the queue until ctx ends. It ends the work on the
// objects that depend on them, and queues these objects again. After each dependency,
// wakeDependents pauses for nine times as long as it has worked. So it is busy for at most a tenth
// of the time.
func (r *Reconciler[O, P]) wakeDependents(ctx context.Context, changed workqueue.TypedInterface[Dependency], wake func(reconcile.Request)) {
	for {
		dependency, ended := changed.Get()
		if ended {
			return
		}
		began := time.Now()
		for _, request := range r.dependents(ctx, dependency) {
			r.underWork.abandon(request.NamespacedName, errDependencyChanged)
			wake(request)
		}
		changed.Done(dependency)
		select {
		case <-ctx.Done():
		case <-time.After(9 * time.Since(began)):
		}
	}
}

func (r *Reconciler[O, P]) dependentsOf(kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.dependents(ctx, Dependency{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()})
	}
}

// dependents returns requests for the objects in the cache that depend on d.
func (r *Reconciler[O, P]) dependents(ctx context.Context, d Dependency) []reconcile.Request {
	var requests []reconcile.Request
	empty, list := r.kind.Empty()
	options := []client.ListOption{client.MatchingFields{dependencyIndex: d.key()}}
	if d.UsedIn != "" {
		// Cluster-scoped dependents have no namespace, so the change affects all of them.
		if namespaced, err := r.shared.Client.IsObjectNamespaced(empty); err != nil || namespaced {
			options = append(options, client.InNamespace(d.UsedIn))
		}
	}
	err := Each(ctx, r.shared.Client, list, func(o O) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}, options...)
	if err != nil {
		return nil // the controller is stopping, or is starting and will reconcile every object
	}
	return requests
}

// Each passes the cached objects of the list's kind to the function show, one by one. The function
// must not change the objects.
func Each[O client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, show func(O), options ...client.ListOption) error {
	if err := reader.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	return apimeta.EachListItem(list, func(o runtime.Object) error {
		show(o.(O)) // the list has only objects of type O
		return nil
	})
}
