package object_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// atWork has an object that a worker is working on; the object's server does not answer.
type atWork struct {
	*world

	o     *v1alpha1.OCIRepository
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	took  time.Duration // duration of the work; zero while the work goes on
	again time.Duration // RequeueAfter of the work's result
}

// startWork makes a worker begin to work on an object with the given spec.timeout.
func startWork(t *testing.T, timeout time.Duration) *atWork {
	t.Helper()
	w := &atWork{world: newWorld(t), queue: newQueue(t)}
	if err := w.r.WatchChanges(t.Context(), w.queue); err != nil {
		t.Fatal(err)
	}
	w.o = w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Timeout = &metav1.Duration{Duration: timeout} })
	w.kind.wait = func(ctx context.Context) { <-ctx.Done() }
	began := time.Now()
	go func() {
		w.again = w.Attempt(w.o).RequeueAfter
		w.took = time.Since(began)
	}()
	time.Sleep(time.Minute)
	synctest.Wait()
	return w
}

func (w *atWork) events() []string {
	var woken []string
	for w.queue.Len() > 0 {
		request, _ := w.queue.Get()
		woken = append(woken, request.String())
		w.queue.Done(request)
	}
	return woken
}

// Work ends at once when the object or one of its dependencies changes. It writes nothing, and it
// begins again. Other changes do not end the work.
func TestOutdatedWorkEnds(t *testing.T) {
	const timeout = 30 * time.Minute
	update := func(change func(*v1alpha1.OCIRepository)) func(*atWork) {
		return func(w *atWork) {
			o := w.Get(w.o)
			change(o)
			w.r.EndOutdatedWork().Update(w.T.Context(), event.UpdateEvent{ObjectOld: w.Get(w.o), ObjectNew: o}, w.queue)
		}
	}
	for name, test := range map[string]struct {
		change func(*atWork)
		ends   bool
	}{
		"another generation": {update(func(o *v1alpha1.OCIRepository) { o.Generation++ }), true},
		"another object":     {update(func(o *v1alpha1.OCIRepository) { o.UID = "uid-of-another" }), true},
		"another status":     {update(func(o *v1alpha1.OCIRepository) { o.Status.ObservedGeneration++ }), false},
		"an older event":     {update(func(o *v1alpha1.OCIRepository) { o.Generation-- }), false},
		"another's spec": {update(func(o *v1alpha1.OCIRepository) {
			o.Name = "other"
			o.Generation++
		}), false},
		"no object": {func(w *atWork) {
			w.r.EndOutdatedWork().Delete(w.T.Context(), event.DeleteEvent{Object: w.Get(w.o)}, w.queue)
		}, true},
		"another account":   {func(w *atWork) { w.change("tenant-a", "puller") }, true},
		"another's account": {func(w *atWork) { w.change("tenant-a", "other"); w.change("tenant-b", "puller") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := startWork(t, timeout)
				before := w.Writes.Statuses
				test.change(w)
				synctest.Wait()
				if (w.took > 0) != test.ends {
					t.Errorf("the work took %s", w.took)
				}
				if woken := w.events(); slices.Contains(woken, "tenant-a/app") != test.ends {
					t.Errorf("woken: %v", woken)
				}
				if test.ends && (w.again != 0 || w.Writes.Statuses != before || len(w.kind.outcomes) > 0) {
					t.Errorf("%d writes, outcomes %v, again after %s", w.Writes.Statuses-before, w.kind.outcomes, w.again)
				}
				time.Sleep(timeout)
				if n := w.r.UnderWork(); n != 0 {
					t.Errorf("%d objects are remembered", n)
				}
				w.kind.wait = nil
				w.reconcile(w.o)
				if got := w.ready(w.o); got.Status != metav1.ConditionTrue {
					t.Errorf("afterwards Ready is %+v", got)
				}
			})
		})
	}
}

// A change while the object is being read ends the work too, because it is not known yet which
// generation is read.
func TestChangesWhileReadingEndWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, queue := newWorld(t), newQueue(t)
		o := w.create("tenant-a", "app", nil)
		w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, read client.Object, opts ...client.GetOption) error {
				err := c.Get(ctx, key, read, opts...)
				w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Interval.Duration = time.Hour })
				w.r.EndOutdatedWork().Update(ctx, event.UpdateEvent{ObjectOld: read, ObjectNew: w.Get(o)}, queue)
				return err
			},
		})
		if result := w.Attempt(o); result.RequeueAfter != 0 || w.Writes.Statuses != 0 || queue.Len() != 1 {
			t.Errorf("again after %s, %d writes, %d objects in the queue", result.RequeueAfter, w.Writes.Statuses, queue.Len())
		}
	})
}

// If a dependency changes while Finalize runs, the result of Finalize may be outdated. So the
// object stays, and is finalized again.
func TestChangesWhileFinalizingKeepTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, queue := newWorld(t), newQueue(t)
		must.Succeed(t, w.r.WatchChanges(t.Context(), queue))
		o := w.create("tenant-a", "app", nil)
		w.reconcile(o)
		must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
		w.kind.finalizing = func() {
			w.change("tenant-a", "puller")
			synctest.Wait()
		}
		w.Attempt(o)
		if got := w.Get(o); len(got.Finalizers) != 1 || queue.Len() != 1 {
			t.Errorf("finalizers %v, %d objects in the queue", got.Finalizers, queue.Len())
		}
		w.kind.finalizing = nil
		w.Attempt(o)
		if err := w.Kube.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) || len(w.kind.finalized) != 2 {
			t.Errorf("finalized %v; the object is still there: %v", w.kind.finalized, err)
		}
	})
}

// A write may delete the object. The API server may send the watch event of the deletion first, and
// then the response to the write. If something stays, the write must not end with the work. An
// event then says what stays. If nothing stays, the write ends with the work.
func TestDeletionMayBeSeenBeforeItsResponse(t *testing.T) {
	for name, test := range map[string]struct {
		finalize error
		lasts    time.Duration // how long the write may go on after the end of the work
		told     []string      // parts of the events
	}{
		"something stays": {&object.LeftoverError{Message: "Secret x stays"}, 4 * time.Second, []string{"Warning ContentStays Secret x stays"}},
		"nothing stays":   {nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, queue := newWorld(t), newQueue(t)
				o := w.create("tenant-a", "app", nil)
				w.reconcile(o)
				w.Told()
				w.kind.finalize = test.finalize
				must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
				var lasted time.Duration
				w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
						time.Sleep(time.Minute) // a slow write is no reason to end the write
						err := errors.Join(c.Patch(ctx, o, patch, opts...), ctx.Err())
						w.r.EndOutdatedWork().Delete(ctx, event.DeleteEvent{Object: o}, queue)
						synctest.Wait()
						err = errors.Join(err, ctx.Err())
						began := time.Now()
						<-ctx.Done()
						lasted = time.Since(began)
						return err
					},
				})
				w.Attempt(o)
				if lasted != test.lasts || queue.Len() != 1 {
					t.Errorf("the write lasted %s, %d objects in the queue", lasted, queue.Len())
				}
				if told := w.Told(); !slices.EqualFunc(told, test.told, strings.Contains) {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}

// If too many slow reconciliations go on, the controller ends the work of one object. This object
// is in the namespace with most slow reconciliations. The end makes room for another namespace. The
// condition of the object says why its work ended, and the object is tried again.
func TestSlowWorkIsCrowdedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.r.StartWorkers(4, func(reconcile.Request) {})
		slow := w.create("tenant-a", "slow", func(o *v1alpha1.OCIRepository) { o.Spec.Timeout = &metav1.Duration{Duration: time.Hour} })
		w.kind.wait = func(ctx context.Context) { <-ctx.Done() }
		w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { return "", errors.New("broke off") }
		var again time.Duration
		if !w.r.Enter(asks("also-slow")) {
			t.Fatal("no worker")
		}
		time.Sleep(time.Second)
		go func() { again = w.Attempt(slow).RequeueAfter }()
		time.Sleep(time.Second)
		for i := range 15 { // with the two above, 17 objects are slow; 16 may go on without a worker
			if !w.r.Enter(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: fmt.Sprint("ns-", i), Name: "app"}}) {
				t.Fatalf("namespace %d has no worker", i)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		got := w.ready(slow)
		if got.Reason != "Slow" || !strings.Contains(got.Message, "other namespaces") || !strings.Contains(got.Message, "broke off") || again == 0 {
			t.Errorf("Ready is %+v, again after %s", got, again)
		}
	})
}

// Slow work in a namespace does not delay the deletion of other objects in the same namespace.
func TestDeletionNeedsNoWorker(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.r.StartWorkers(1, func(reconcile.Request) {})
	if !w.r.Enter(asks("slow")) {
		t.Fatal("no worker")
	}
	must.Succeed(t, w.Kube.Delete(t.Context(), o))
	w.Attempt(o)
	if !slices.Equal(w.kind.finalized, []string{"app"}) {
		t.Errorf("finalized %v", w.kind.finalized)
	}
}
