package source

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
)

// accountIndex finds the objects that depend on a ServiceAccount: that name it, or whose default it is.
const accountIndex = "spec.serviceAccountName"

func (r *Reconciler[O, P]) indexAccount(o client.Object) []string {
	fields := r.kind.View(o.(O)).Fields //nolint:forcetypeassert // the index is of this kind
	if name := r.shared.Rules.AccountName(fields); name != "" {
		return []string{name}
	}
	return nil
}

// SetupWithManager has the manager run the reconciler, with so many objects at once. Call it before the manager starts, and after the
// token cache has subscribed to the accounts: an object is reconciled again once the cache knows of the change.
func (r *Reconciler[O, P]) SetupWithManager(ctx context.Context, mgr manager.Manager, concurrent int) error {
	empty, _ := r.kind.Empty()
	if err := mgr.GetFieldIndexer().IndexField(ctx, empty, accountIndex, r.indexAccount); err != nil {
		return fmt.Errorf("index objects of kind %s by ServiceAccount: %w", r.name, err)
	}
	return builder.ControllerManagedBy(mgr).
		Named(strings.ToLower(r.name)).
		For(empty, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, requestChanged()))).
		// A new account may be what an object has been waiting for; nobody has known anything else of it.
		WatchesMetadata(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(r.usersOf), builder.WithPredicates(createdOnly())).
		// Of changes we hear when those who keep tokens have heard of them.
		WatchesRawSource(source.Func(r.watchAccounts)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.workers.start(concurrent, queue.Add)
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, ReconciliationTimeout: maxTimeout + time.Minute}).
		Complete(r)
}

// requestChanged passes objects whose request to be reconciled has changed.
func requestChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			now := e.ObjectNew.GetAnnotations()[meta.ReconcileRequestedAnnotation]
			return now != "" && now != e.ObjectOld.GetAnnotations()[meta.ReconcileRequestedAnnotation]
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

// watchAccounts is a source of requests: it runs when this replica begins to reconcile. Whoever hears of changes has all others wait
// that hear of them, those who keep tokens among them, and an account may have many objects and change often. So its name is put aside,
// once however often it changes, and its objects are found later.
func (r *Reconciler[O, P]) watchAccounts(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	changed := workqueue.NewTyped[auth.Subject]()
	context.AfterFunc(ctx, changed.ShutDown)
	r.shared.Accounts.Subscribe(changed.Add)
	go r.wakeUsers(ctx, changed, queue.Add)
	return nil
}

// wakeUsers wakes the objects of the accounts, until ctx ends. It works for a tenth of the time at the most.
func (r *Reconciler[O, P]) wakeUsers(ctx context.Context, changed workqueue.TypedInterface[auth.Subject], wake func(reconcile.Request)) {
	for {
		subject, ended := changed.Get()
		if ended {
			return
		}
		began := time.Now()
		for _, request := range r.users(ctx, subject.Namespace(), subject.Name()) {
			wake(request)
		}
		changed.Done(subject)
		select {
		case <-ctx.Done():
		case <-time.After(9 * time.Since(began)):
		}
	}
}

func (r *Reconciler[O, P]) usersOf(ctx context.Context, account client.Object) []reconcile.Request {
	return r.users(ctx, account.GetNamespace(), account.GetName())
}

// users are the objects that depend on a ServiceAccount, from memory.
func (r *Reconciler[O, P]) users(ctx context.Context, namespace, name string) []reconcile.Request {
	var requests []reconcile.Request
	err := r.each(ctx, func(o O) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}, client.InNamespace(namespace), client.MatchingFields{accountIndex: name})
	if err != nil {
		return nil // the controller is ending, or has not begun and will see every object
	}
	return requests
}

// each shows the objects of the kind, from memory. They must not be changed.
func (r *Reconciler[O, P]) each(ctx context.Context, show func(O), options ...client.ListOption) error {
	_, list := r.kind.Empty()
	if err := r.shared.Client.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	return apimeta.EachListItem(list, func(o runtime.Object) error {
		show(o.(O)) //nolint:forcetypeassert // the list is of this kind
		return nil
	})
}
