package object_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// A change of an account wakes the objects in the account's namespace that use it. Code that caches
// tokens learns of the change before the objects wake.
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

	queue := newQueue(t)
	tokensKnow := false
	w.Accounts.Subscribe(func(auth.Subject) { tokensKnow = true })
	must.Succeed(t, w.r.WatchChanges(t.Context(), queue))
	w.change("tenant-a", "puller")
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
	if got := w.r.DependentsOf("ServiceAccount")(t.Context(), created); len(got) != 1 || got[0].String() != "tenant-a/other" {
		t.Errorf("a new account wakes %v", got)
	}
}

// A change of a dependency may concern only the objects of one namespace. Such a change must wake
// no object of another namespace.
func TestUsersOfOneNamespaceWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("tenant-a", "one", nil)
		w.create("tenant-a", "two", nil)
		all := object.Dependency{Kind: "ServiceAccount", Namespace: "tenant-a", Name: "puller"}
		for usedIn, want := range map[string]int{"": 2, "tenant-a": 2, "tenant-b": 0} {
			only := all
			only.UsedIn = usedIn
			if got := w.r.Dependents(t.Context(), only); len(got) != want {
				t.Errorf("used in %q: woken %v", usedIn, got)
			}
		}
	})
}

// An object that is too large for the cache is refused until its own fields change. So a change of
// a dependency must not wake the object, and must not end the write of its status.
func TestDependenciesDoNotWakeLargeObjects(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "large", func(o *v1alpha1.OCIRepository) {
		for i := range 1000 {
			metav1.SetMetaDataLabel(&o.ObjectMeta, fmt.Sprint("key-", i), "")
		}
	})
	if keys := w.r.Index(o); len(keys) != 1 {
		t.Fatalf("before the cache: %q", keys)
	}
	_, err := object.Remember(o)
	must.Succeed(t, err)
	// The stub has no spec. Kinds such as AWSCluster have a default dependency then, as this object
	// has with an account.
	o.Spec.ServiceAccountName = "puller"
	if keys := w.r.Index(o); len(keys) > 0 {
		t.Errorf("in the cache: %q", keys)
	}
	// The deletion of an identity waits until no object uses the identity.
	o.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	if keys := w.r.Index(o); len(keys) != 1 {
		t.Errorf("deleted: %q", keys)
	}
}

// Even if an account has many objects and changes often, all subscribers learn of each change
// without delay. So no cached token is used for longer than its account allows.
func TestManyObjectsKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("tenant-a", "one", nil)
		w.create("tenant-b", "one", nil)
		var lists atomic.Int32
		w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
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
		queue := newQueue(t)
		must.Succeed(t, w.r.WatchChanges(ctx, queue))
		invalidated := 0
		w.Accounts.Subscribe(func(auth.Subject) { invalidated++ })
		began := time.Now()
		for range 1000 {
			w.change("tenant-a", "puller")
			w.change("tenant-b", "puller")
		}
		if took := time.Since(began); took > 0 || invalidated != 2000 {
			t.Errorf("%d of 2000 changes were told within %s", invalidated, took)
		}
		time.Sleep(time.Minute)
		if n := lists.Load(); n < 2 || n > 3 || queue.Len() != 2 { // one more List may be running
			t.Errorf("%d lists, %d objects woken", n, queue.Len())
		}
		for range 100 {
			w.change("tenant-a", "puller")
			time.Sleep(time.Second)
		}
		if n := lists.Load(); n > 14 {
			t.Errorf("%d lists of a second each in 100 seconds", n)
		}
		stop() // ends the goroutine; otherwise the test would never end
	})
}

// A new cluster-scoped dependency wakes exactly the objects that depend on it, in all namespaces.
func TestDependenciesOfOtherKindsWakeTheirObjects(t *testing.T) {
	w := newWorld(t)
	on := func(name string) func(*v1alpha1.OCIRepository) {
		return func(o *v1alpha1.OCIRepository) { o.Spec.SecretRef = &meta.LocalReference{Name: name} }
	}
	w.create("tenant-a", "one", on("shared"))
	w.create("tenant-b", "two", on("shared"))
	w.create("tenant-b", "three", on("another"))
	w.create("tenant-b", "account", func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "shared" })
	woken := map[string]bool{}
	for _, request := range w.r.DependentsOf("Cluster")(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}) {
		woken[request.String()] = true
	}
	if len(woken) != 2 || !woken["tenant-a/one"] || !woken["tenant-b/two"] {
		t.Errorf("woken: %v", woken)
	}
}
