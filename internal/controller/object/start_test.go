package object_test

import (
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// When the controller starts, the first reconciliations of existing objects are spread over time.
// These objects are reconciled at once:
//   - existing objects with a change or a request that has not been handled
//   - objects that are created later
func TestObjectsStartSpreadOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, within = 1000, 10 * time.Minute
		w := newWorld(t)
		w.kind.startWithin = within
		queue := newQueue(t)
		handle := w.r.StartCreated()
		for i := range many {
			o := &v1alpha1.OCIRepository{}
			o.Namespace, o.Name = "tenant-a", "app-"+time.Duration(i).String()
			handle.Create(t.Context(), event.CreateEvent{Object: o, IsInInitialList: true}, queue)
		}
		if queue.Len() > 0 {
			t.Fatal("an object that may wait is looked at at once")
		}
		if handle.Create(t.Context(), event.CreateEvent{Object: &v1alpha1.OCIRepository{}}, queue); queue.Len() != 1 {
			t.Error("an object that is created later is taken for an object that was there")
		}
		created, _ := queue.Get()
		queue.Done(created)
		for _, o := range []client.Object{
			urgent(func(o *v1alpha1.OCIRepository) { o.Generation = 1 }),
			urgent(func(o *v1alpha1.OCIRepository) {
				o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: "1"}
			}),
			urgent(func(o *v1alpha1.OCIRepository) {
				o.Annotations = map[string]string{meta.OperationAnnotation: meta.OperationRenewToken}
			}),
		} {
			handle.Create(t.Context(), event.CreateEvent{Object: o, IsInInitialList: true}, queue)
			if queue.Len() != 1 {
				t.Error("an object that may not wait waits")
			}
			urgent, _ := queue.Get()
			queue.Done(urgent)
		}
		w.kind.startWithin = 0
		last := event.CreateEvent{Object: urgent(func(*v1alpha1.OCIRepository) {}), IsInInitialList: true}
		if handle.Create(t.Context(), last, queue); queue.Len() != 1 {
			t.Error("an object that may not wait any more waits")
		}
		at, _ := queue.Get()
		queue.Done(at)
		for part := 1; part <= 10; part++ {
			time.Sleep(within / 10)
			synctest.Wait()
			if n := queue.Len(); n < many*part/10-many/10 || n > many*part/10+many/10 {
				t.Errorf("after %s, %d of %d objects have begun", time.Duration(part)*within/10, n, many)
			}
		}
	})
}

// urgent returns an object that must not wait, because the given change has been made to it.
func urgent(because func(*v1alpha1.OCIRepository)) client.Object {
	o := &v1alpha1.OCIRepository{}
	because(o)
	return o
}

// The time of the next reconciliation depends on the result of Act.
func TestTimesFollowFromTheStatus(t *testing.T) {
	w := newWorld(t)
	w.kind.retryWithin = 10 * time.Millisecond
	o := w.create("tenant-a", "app", nil)
	w.kind.act = func(o *v1alpha1.OCIRepository) (string, error) { o.Spec.Interval.Duration = time.Hour; return "", nil }
	if result := w.reconcile(o); result.RequeueAfter < 57*time.Minute {
		t.Errorf("again after %s", result.RequeueAfter)
	}
	w.fails(errOdd)
	for range 3 {
		if result := w.reconcile(o); result.RequeueAfter > 11*time.Millisecond {
			t.Errorf("again after %s", result.RequeueAfter)
		}
	}
}
