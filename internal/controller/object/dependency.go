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
)

// Dependency is something that objects depend on, such as a ServiceAccount.
type Dependency struct {
	// Kind is its kind, such as ServiceAccount.
	Kind string
	// Namespace is its namespace; empty if it is cluster-scoped.
	Namespace string
	// Name is its name.
	Name string
	// UsedIn is the namespace of the objects that a change is about; empty for those of all
	// namespaces.
	UsedIn string
}

// DependencyOn is a subject as something that objects depend on.
func DependencyOn(subject auth.Subject) Dependency {
	return Dependency{Kind: string(subject.Kind()), Namespace: subject.Namespace(), Name: subject.Name()}
}

// Dependencies tell when something changes that objects depend on.
type Dependencies struct {
	// Created has an empty object for each kind of dependency that objects may wait for. The frame
	// watches the metadata of that kind, and wakes the objects that depend on a new one.
	Created map[string]client.Object
	// Subscribe has changed called after a dependency was changed or deleted. Programs that keep
	// tokens must have subscribed before, so that they know of the change before an object is
	// reconciled. changed returns at once. Required.
	Subscribe func(changed func(Dependency))
}

// dependencyIndex finds the objects that depend on something, by the dependency's key.
const dependencyIndex = "dependencies"

func (d Dependency) key() string { return d.Kind + "/" + d.Namespace + "/" + d.Name }

// dependencies are the keys of what an object depends on.
func (r *Reconciler[O, P]) dependencies(o client.Object) []string {
	var keys []string
	for _, d := range r.kind.View(o.(O)).DependsOn { // the index is of this kind
		keys = append(keys, d.key())
	}
	return keys
}

// SetupWithManager has the manager run the reconciler, which works on at most so many objects at
// once. Call it before the manager starts.
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
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, ReconciliationTimeout: MaxTimeout + time.Minute})
	for kind, created := range r.shared.Dependencies.Created {
		setup = setup.WatchesMetadata(created, handler.EnqueueRequestsFromMapFunc(r.dependentsOf(kind)), builder.WithPredicates(createdOnly()))
	}
	return setup.Complete(r)
}

// startWithin is how long an object may wait that is there when the controller starts.
func (r *Reconciler[O, P]) startWithin(e event.CreateEvent) time.Duration {
	o := e.Object.(O) // the watch is of this kind
	if asked(o) || RenewalRequested(o) {
		return 0
	}
	return r.kind.View(o).StartWithin
}

// notCreated passes all events but creations, which startCreated handles.
func notCreated() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
}

// startCreated queues each new object. An object that the controller found when it began to
// watch may wait for StartWithin, so that thousands of objects are no herd after a restart. One
// handler must decide this. Handlers are added one after the other, while objects are created. So the
// same object can be new for one handler and found for another handler.
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

// requestChanged passes objects whose request to be reconciled has changed, for which somebody
// begins to ask for new tokens, or which somebody allows another account.
func requestChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			now := requested(e.ObjectNew)
			account := AllowedAccount(e.ObjectNew)
			return now != "" && now != requested(e.ObjectOld) || RenewalRequested(e.ObjectNew) && !RenewalRequested(e.ObjectOld) ||
				account != "" && account != AllowedAccount(e.ObjectOld)
		},
	}
}

func createdOnly() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// watchChanges is a source of requests; it runs once this replica begins to reconcile. A subscriber
// must return at once, because all other subscribers wait for it, and a dependency may have many
// dependents and change often. So changes are queued, each dependency once however often it
// changes, and the dependents are looked up later.
//
//nolint:unparam // controller-runtime takes a function that may fail
func (r *Reconciler[O, P]) watchChanges(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	changed := workqueue.NewTyped[Dependency]()
	context.AfterFunc(ctx, changed.ShutDown)
	r.shared.Dependencies.Subscribe(changed.Add)
	go r.wakeDependents(ctx, changed, queue.Add)
	return nil
}

// wakeDependents has the objects that depend on a changed object begin anew, until ctx ends. It
// works for at most a tenth of the time.
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

// dependents are the objects that depend on d, from memory.
func (r *Reconciler[O, P]) dependents(ctx context.Context, d Dependency) []reconcile.Request {
	var requests []reconcile.Request
	empty, list := r.kind.Empty()
	options := []client.ListOption{client.MatchingFields{dependencyIndex: d.key()}}
	if d.UsedIn != "" {
		// A cluster-scoped object has users in all namespaces, so it hears of each of them.
		if namespaced, err := r.shared.Client.IsObjectNamespaced(empty); err != nil || namespaced {
			options = append(options, client.InNamespace(d.UsedIn))
		}
	}
	err := Each(ctx, r.shared.Client, list, func(o O) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}, options...)
	if err != nil {
		return nil // the controller is ending, or has not begun and will see every object
	}
	return requests
}

// Each shows the objects that list is a list of, from memory. They must not be changed.
func Each[O client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, show func(O), options ...client.ListOption) error {
	if err := reader.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	return apimeta.EachListItem(list, func(o runtime.Object) error {
		show(o.(O)) // the list is of this kind
		return nil
	})
}
