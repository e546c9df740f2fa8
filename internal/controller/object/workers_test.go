package object

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func asks(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

// Two hostile namespaces must not be able to occupy all workers by making them wait for servers.
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
	for range 3 { // an object that asks several times waits only once
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
	// Each object that leaves wakes one waiting object, until no object waits.
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
