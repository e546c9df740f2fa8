package source

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
)

// A change of an account wakes the objects of its own namespace that name it, after those who keep tokens have heard of it.
func TestAccountsWakeTheirObjects(t *testing.T) {
	synctest.Test(t, accountsWakeTheirObjects)
}

func accountsWakeTheirObjects(t *testing.T) {
	w := newWorld(t)
	w.create("tenant-a", "one", nil)
	w.create("tenant-a", "two", nil)
	w.create("tenant-a", "other", func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "other" })
	w.create("tenant-a", "none", func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "" })
	w.create("tenant-b", "one", nil)
	w.create("tenant-b", "three", nil)

	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	tokensKnow := false
	w.accounts.Subscribe(func(auth.Subject) { tokensKnow = true })
	if err := w.r.watchAccounts(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	w.accounts.change(t, "tenant-a", "puller")
	synctest.Wait()
	woken := map[string]bool{}
	for queue.Len() > 0 {
		request, _ := queue.Get()
		woken[request.String()] = true
		queue.Done(request)
	}
	if len(woken) != 2 || !woken["tenant-a/one"] || !woken["tenant-a/two"] {
		t.Errorf("woken: %v", woken)
	}
	if !tokensKnow {
		t.Error("objects were woken and the cache does not know")
	}
	created := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "other"}}
	if got := w.r.usersOf(t.Context(), created); len(got) != 1 || got[0].String() != "tenant-a/other" {
		t.Errorf("a new account wakes %v", got)
	}
}

// However many objects an account has and however often it changes, nobody's tokens outlive what they stand on because of it.
func TestManyObjectsKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("tenant-a", "one", nil)
		w.create("tenant-b", "one", nil)
		var lists atomic.Int32
		w.shared.Client = interceptor.NewClient(w.kube, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				lists.Add(1)
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Second):
					return c.List(ctx, list, opts...)
				}
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		if err := w.r.watchAccounts(ctx, queue); err != nil {
			t.Fatal(err)
		}
		invalidated := 0
		w.accounts.Subscribe(func(auth.Subject) { invalidated++ })
		began := time.Now()
		for range 1000 {
			w.accounts.change(t, "tenant-a", "puller")
			w.accounts.change(t, "tenant-b", "puller")
		}
		if took := time.Since(began); took > 0 || invalidated != 2000 {
			t.Errorf("%d of 2000 changes were told within %s", invalidated, took)
		}
		time.Sleep(time.Minute)
		if n := lists.Load(); n < 2 || n > 3 || queue.Len() != 2 { // one may have been under way
			t.Errorf("%d lists, %d objects woken", n, queue.Len())
		}
		for range 100 {
			w.accounts.change(t, "tenant-a", "puller")
			time.Sleep(time.Second)
		}
		if n := lists.Load(); n > 14 {
			t.Errorf("%d lists of a second each in 100 seconds", n)
		}
		stop() // and the goroutine ends, or the test never does
	})
}

// Objects that name no account wait for the default one.
func TestDefaultAccountWakesItsObjects(t *testing.T) {
	w := newWorld(t)
	w.shared.Rules.DefaultServiceAccount = "default"
	w.create("tenant-a", "unnamed", func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "" })
	w.create("tenant-a", "named", nil)
	w.create("tenant-a", "generic", func(o *v1alpha1.OCIRepository) { o.Spec.Provider, o.Spec.ServiceAccountName = "generic", "" })
	w.create("tenant-b", "unnamed", func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "" })
	created := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "default"}}
	if got := w.r.usersOf(t.Context(), created); len(got) != 1 || got[0].String() != "tenant-a/unnamed" {
		t.Errorf("it wakes %v", got)
	}
}

func TestPredicates(t *testing.T) {
	object := func(generation int64, request string) *v1alpha1.OCIRepository {
		o := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		if request != "" {
			o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: request}
		}
		return o
	}
	changed := predicate.Or(predicate.Predicate(predicate.GenerationChangedPredicate{}), requestChanged())
	for name, c := range map[string]struct {
		before, after *v1alpha1.OCIRepository
		want          bool
	}{
		"status only":       {object(1, ""), object(1, ""), false},
		"generation":        {object(1, ""), object(2, ""), true},
		"request":           {object(1, ""), object(1, "a"), true},
		"another request":   {object(1, "a"), object(1, "b"), true},
		"same request":      {object(1, "a"), object(1, "a"), false},
		"request withdrawn": {object(1, "a"), object(1, ""), false},
	} {
		if got := changed.Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if !changed.Create(event.CreateEvent{Object: object(1, "")}) {
		t.Error("a new object is not seen")
	}
	account := &corev1.ServiceAccount{}
	only := createdOnly()
	if !only.Create(event.CreateEvent{Object: account}) || only.Update(event.UpdateEvent{ObjectOld: account, ObjectNew: account}) || only.Delete(event.DeleteEvent{Object: account}) {
		t.Error("accounts are seen other than when they are made")
	}
}
