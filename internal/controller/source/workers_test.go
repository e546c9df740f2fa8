package source

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

func asks(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

// Two hostile namespaces must not be able to have all workers wait for their registries.
func TestSharesOfTheWorkers(t *testing.T) {
	shared := &workers{}
	shared.start(10, func(reconcile.Request) {})
	var got []int
	for _, namespace := range []string{"a", "b", "c", "d"} {
		entered := 0
		for i := range 20 {
			if shared.enter(asks(namespace, i)) {
				entered++
			}
		}
		got = append(got, entered)
	}
	if fmt.Sprint(got) != "[5 2 1 1]" {
		t.Errorf("four greedy namespaces have %v of 10 workers", got)
	}
	if !shared.enter(asks("e", 0)) {
		t.Error("a namespace with nothing under way has to wait")
	}
	one := &workers{}
	one.start(1, func(reconcile.Request) {})
	if !one.enter(asks("a", 0)) {
		t.Error("nobody may use the only worker")
	}
}

func TestRoomWakesThoseWhoWait(t *testing.T) {
	woken := map[reconcile.Request]int{}
	shared := &workers{}
	shared.start(4, func(r reconcile.Request) { woken[r]++ })
	for i := range 2 {
		if !shared.enter(asks("a", i)) {
			t.Fatalf("object %d has no worker", i)
		}
	}
	for range 3 { // however often an object asks, it waits once
		for i := range 100 {
			if shared.enter(asks("a", 100+i)) {
				t.Fatal("more than half of the workers")
			}
		}
	}
	shared.enter(asks("b", 0))
	shared.leave(asks("b", 0))
	if len(woken) != 0 {
		t.Fatalf("woken without room: %v", woken)
	}
	// One leaves, one is woken, until nobody waits.
	leaving := asks("a", 0)
	for i := range 100 {
		shared.leave(leaving)
		if len(woken) != i+1 {
			t.Fatalf("%d woken after %d left", len(woken), i+1)
		}
		for r := range woken {
			if woken[r] == 1 && shared.enter(r) {
				woken[r], leaving = 2, r
			}
		}
	}
	shared.leave(leaving)
	shared.leave(asks("a", 1))
	if len(shared.waiting) != 0 || len(shared.busy) != 0 || shared.all != 0 {
		t.Errorf("something is left: %+v", shared)
	}
}

// What a namespace has of one kind under way takes nothing from another kind: these have workers of their own.
func TestKindsHaveWorkersOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	other := New(w.shared, v1alpha1.BucketKind, w.kind)
	o := w.create("tenant-a", "app", nil)
	for _, r := range []*Reconciler[*v1alpha1.OCIRepository, string]{w.r, other} {
		r.workers.start(4, func(reconcile.Request) {})
	}
	for i := range 2 {
		if !other.workers.enter(asks("tenant-a", i)) {
			t.Fatalf("object %d has no worker", i)
		}
	}
	if w.reconcile(o); !slices.Equal(w.kind.fetched, []string{"app"}) {
		t.Errorf("fetched %v", w.kind.fetched)
	}
}

func TestOneNamespaceDoesNotTakeAllWorkers(t *testing.T) {
	w := newWorld(t)
	a, b := w.create("tenant-a", "a", nil), w.create("tenant-b", "b", nil)
	var woken []reconcile.Request
	w.r.workers.start(2, func(r reconcile.Request) { woken = append(woken, r) })
	other := asks("tenant-a", 1)
	if !w.r.workers.enter(other) {
		t.Fatal("the first may not enter")
	}
	if result := w.attempt(a); result.RequeueAfter < 30*time.Second || len(w.kind.fetched) != 0 {
		t.Errorf("crowded: %+v, fetched %v", result, w.kind.fetched)
	}
	if w.reconcile(b); !slices.Equal(w.kind.fetched, []string{"b"}) {
		t.Errorf("the other tenant waits: fetched %v", w.kind.fetched)
	}
	w.r.workers.leave(other)
	if len(woken) != 1 || woken[0].NamespacedName != client.ObjectKeyFromObject(a) {
		t.Errorf("there is room, and woken is %v", woken)
	}
	if w.reconcile(a); !slices.Equal(w.kind.fetched, []string{"b", "a"}) {
		t.Errorf("afterwards: fetched %v", w.kind.fetched)
	}
}
