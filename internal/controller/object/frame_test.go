package object_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func asks(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "tenant-a", Name: name}}
}

// Work on objects of one kind takes no workers from another kind: each kind has its own workers.
func TestKindsHaveWorkersOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	other := object.New(w.Shared.Shared.Shared, v1alpha1.BucketKind, w.kind)
	o := w.create("tenant-a", "app", nil)
	for _, r := range []*object.Reconciler[*v1alpha1.OCIRepository, string]{w.r, other} {
		r.StartWorkers(4, func(reconcile.Request) {})
	}
	for i := range 2 {
		if !other.Enter(asks(fmt.Sprint(i))) {
			t.Fatalf("object %d has no worker", i)
		}
	}
	if w.reconcile(o); !slices.Equal(w.kind.acted, []string{"app"}) {
		t.Errorf("fetched %v", w.kind.acted)
	}
}

// If an object gets no worker, its reconciliation reads the object from the cache, and ends. If the
// object gets a worker during this read, the worker stays reserved for the object's next
// reconciliation.
func TestWorkerOfAnObjectThatIsBeingRead(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-b", "app", nil)
	var woken []reconcile.Request
	w.r.StartWorkers(1, func(r reconcile.Request) { woken = append(woken, r) })
	if !w.r.Enter(asks("first")) {
		t.Fatal("no worker")
	}
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, read client.Object, opts ...client.GetOption) error {
			w.r.Leave(asks("first"))
			return c.Get(ctx, key, read, opts...)
		},
	})
	if w.Attempt(o); len(woken) != 1 || len(w.kind.acted) != 0 {
		t.Fatalf("woken %v, fetched %v", woken, w.kind.acted)
	}
	if w.r.Enter(asks("second")) {
		t.Error("another object took the worker")
	}
	if w.reconcile(o); !slices.Equal(w.kind.acted, []string{"app"}) {
		t.Errorf("afterwards: fetched %v", w.kind.acted)
	}
}

func TestOneNamespaceDoesNotTakeAllWorkers(t *testing.T) {
	w := newWorld(t)
	a, b := w.create("tenant-a", "a", nil), w.create("tenant-b", "b", nil)
	var woken []reconcile.Request
	w.r.StartWorkers(2, func(r reconcile.Request) { woken = append(woken, r) })
	other := asks("1")
	if !w.r.Enter(other) {
		t.Fatal("the first may not enter")
	}
	if result := w.Attempt(a); result.RequeueAfter != 0 || len(w.kind.acted) != 0 {
		t.Errorf("crowded: %+v, fetched %v", result, w.kind.acted)
	}
	if w.reconcile(b); !slices.Equal(w.kind.acted, []string{"b"}) {
		t.Errorf("the other tenant waits: fetched %v", w.kind.acted)
	}
	w.r.Leave(other)
	if len(woken) != 1 || woken[0].NamespacedName != client.ObjectKeyFromObject(a) {
		t.Errorf("there is room, and woken is %v", woken)
	}
	if w.reconcile(a); !slices.Equal(w.kind.acted, []string{"b", "a"}) {
		t.Errorf("afterwards: fetched %v", w.kind.acted)
	}
}

func TestObjectsAreCounted(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewPedanticRegistry()
	must.Succeed(t, registry.Register(object.NewMetrics(t.Context(), w.Shared.Shared.Shared)))
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics break the conventions: %+v, %v", problems, err)
	}
	w.reconcile(w.create("tenant-a", "well", nil))
	w.fails(errOdd)
	for i := range 100 {
		w.reconcile(w.create("tenant-b", fmt.Sprint("odd-", i), nil))
	}
	w.reconcile(w.create("tenant-b", "nonsense", func(o *v1alpha1.OCIRepository) { o.Spec.URL = "" }))
	w.reconcile(w.create("tenant-b", "idle", func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true }))
	w.create("tenant-b", "new", nil)

	const name = "lanyard_objects"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(""), name); err != nil {
		t.Errorf("a replica that does not reconcile counts: %v", err)
	}
	close(w.Elected)
	want := `
# HELP lanyard_objects Objects by kind, namespace, and status (True, False, Unknown) and reason of their condition Ready.
# TYPE lanyard_objects gauge
lanyard_objects{kind="OCIRepository",namespace="tenant-a",ready="True",reason="Succeeded"} 1
lanyard_objects{kind="OCIRepository",namespace="tenant-b",ready="False",reason="InvalidSpec"} 1
lanyard_objects{kind="OCIRepository",namespace="tenant-b",ready="False",reason="Odd"} 100
lanyard_objects{kind="OCIRepository",namespace="tenant-b",ready="False",reason="Suspended"} 1
lanyard_objects{kind="OCIRepository",namespace="tenant-b",ready="Unknown",reason="Progressing"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

func burdened(o *v1alpha1.OCIRepository) {
	o.Annotations = map[string]string{
		meta.ReconcileRequestedAnnotation: "now", "note": strings.Repeat("x", 200<<10), "kubectl.kubernetes.io/last-applied-configuration": "{}",
	}
	o.Labels = map[string]string{"team": "a"}
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "y"}}
}

// The cache lacks some of an object's metadata. The object keeps this metadata at the API server,
// even when the finalizer is added or removed.
func TestNothingIsLostThatIsNotRemembered(t *testing.T) {
	w := newWorld(t)
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			_, err := object.Remember(o)
			return err
		},
	})
	o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) {
		burdened(o)
		o.Finalizers = []string{"example.com/other"}
	})
	check := func(finalizers ...string) {
		t.Helper()
		got := w.Get(o)
		if !maps.Equal(got.Annotations, o.Annotations) || !maps.Equal(got.Labels, o.Labels) || len(got.OwnerReferences) != 1 ||
			!slices.Equal(got.Finalizers, finalizers) || got.Status.LastHandledReconcileAt != "now" {
			t.Errorf("%d annotations, labels %v, owners %v, finalizers %v, handled %q",
				len(got.Annotations), got.Labels, got.OwnerReferences, got.Finalizers, got.Status.LastHandledReconcileAt)
		}
	}
	for range 2 { // the first reconciliation adds the finalizer
		w.reconcile(o)
		check("example.com/other", meta.Finalizer)
	}
	must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
	if _, err := w.Reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
		t.Fatal(err)
	}
	check("example.com/other")
}

// TestWritesAreFew checks that the first reconciliation of an object writes twice: the finalizer and
// the status. A reconciliation that changes nothing must not write.
func TestWritesAreFew(t *testing.T) {
	w := newWorld(t)
	// Set observedGeneration to -1, as the schema's default does: the fake API server has no
	// defaults.
	o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Status.ObservedGeneration = -1 })
	if w.reconcile(o); *w.Writes != (controllertest.Writes{Objects: 1, Statuses: 1}) {
		t.Errorf("first: %+v", *w.Writes)
	}
	if w.reconcile(o); *w.Writes != (controllertest.Writes{Objects: 1, Statuses: 1}) {
		t.Errorf("without a change: %+v", *w.Writes)
	}
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Interval.Duration = time.Hour })
	if w.reconcile(o); *w.Writes != (controllertest.Writes{Objects: 1, Statuses: 2}) {
		t.Errorf("another generation: %+v", *w.Writes)
	}
	bare := w.create("tenant-a", "bare", func(o *v1alpha1.OCIRepository) { o.Spec.Insecure = true })
	if w.reconcile(bare); w.Writes.Objects != 1 || len(w.Get(bare).Finalizers) != 0 {
		t.Errorf("a kind that keeps nothing: %d writes, finalizers %v", w.Writes.Objects, w.Get(bare).Finalizers)
	}
}

// Objects that would be due at nearly the same time become due at the same time.
func TestDueTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const interval = time.Minute
		due := map[time.Time]bool{}
		for i := range 100 {
			o := w.create("tenant-a", fmt.Sprint("app-", i), func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: interval} })
			again := w.reconcile(o).RequeueAfter
			if least, most := interval*19/20, interval*21/20+object.Stride; again < least || again > most {
				t.Errorf("again after %s, want %s to %s", again, least, most)
			}
			due[time.Now().Add(again)] = true
			time.Sleep(time.Millisecond)
		}
		if times := int(interval/10/object.Stride) + 2; len(due) > times {
			t.Errorf("100 objects are due at %d times, want %d at the most", len(due), times)
		}
		if again := object.Together(0); again != 0 {
			t.Errorf("an object without an interval is due after %s", again)
		}
	})
}

// If the work on a new generation takes a while, the status shows progress. So nobody mistakes the
// result of the previous generation for the result of this generation.
func TestProgressIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.create("tenant-a", "app", nil)
		var early, late []metav1.Condition
		w.kind.act = func(o *v1alpha1.OCIRepository) (string, error) {
			time.Sleep(object.ProgressAfter - time.Millisecond)
			early = w.Get(o).Status.Conditions
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			late = w.Get(o).Status.Conditions
			return "", errOdd
		}
		for generation := range int64(2) {
			w.reconcile(o)
			if len(late) < 2 || late[0].Type != meta.ConditionReady || late[0].Status != metav1.ConditionUnknown ||
				late[len(late)-1].Type != meta.ConditionReconciling || late[len(late)-1].ObservedGeneration != generation+1 {
				t.Errorf("generation %d, after a while: %+v", generation+1, late)
			}
			for _, c := range early {
				if c.ObservedGeneration != generation {
					t.Errorf("generation %d, at first: %+v", generation+1, early)
				}
			}
			if c := w.ready(o); c.Reason != "Odd" || c.Message != "that was odd" {
				t.Errorf("generation %d, afterwards: %+v", generation+1, c)
			}
			w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Interval.Duration = time.Hour })
		}
		w.reconcile(o)
		w.reconcile(o)
		if late[0].Status != metav1.ConditionFalse {
			t.Errorf("a generation that is known: %+v", late)
		}
	})
}

// TestMemoryIsShared checks a fetch that needs more memory than the program has for fetches. The
// condition says so. The memory of a fetch is free for others after the fetch.
func TestMemoryIsShared(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	var bytes int64
	var err error
	w.kind.wait = func(ctx context.Context) { err = reserve.Take(ctx, bytes) }
	w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { return "", err }
	bytes = 1 << 50
	w.reconcile(o)
	if c := w.ready(o); c.Reason != "Slow" || !strings.Contains(c.Message, "no more memory for this namespace") {
		t.Errorf("too much memory: %+v", c)
	}
	bytes = 100 << 20
	for range 40 { // together much more than the memory of all fetches
		w.reconcile(o)
		if c := w.ready(o); c.Status != metav1.ConditionTrue {
			t.Errorf("enough memory: %+v", c)
		}
	}
}

func TestRecoveryIsTold(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { return "NewThing", nil }
	w.reconcile(o)
	w.fails(errOdd, nil, nil)
	for range 3 {
		w.reconcile(o)
	}
	told := w.Told()
	if len(told) != 3 || !strings.HasPrefix(told[0], "Normal NewThing") || !strings.HasPrefix(told[1], "Warning Odd that was odd") || !strings.HasPrefix(told[2], "Normal Succeeded") {
		t.Errorf("events %q", told)
	}
}

// An object that waits for others is Unknown, is reconciled again after the pause that the kind has
// chosen, and makes no event of its own. The news of the work that was done before are told.
func TestWaitingIsNoFailure(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.kind.note = "a new thing"
	w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { return "NewThing", errPending }
	for range 5 {
		if pause := w.reconcile(o).RequeueAfter; pause != 3*time.Second {
			t.Errorf("again after %s", pause)
		}
		w.kind.note = ""
	}
	if c := w.ready(o); c.Status != metav1.ConditionUnknown || c.Reason != meta.ReasonProgressing || c.Message != errPending.Error() {
		t.Errorf("%+v", c)
	}
	w.fails(errOdd)
	if pause := w.reconcile(o).RequeueAfter; pause > 2*time.Second {
		t.Errorf("after the first failure, again after %s", pause)
	}
	told := w.Told()
	if len(told) != 2 || !strings.HasPrefix(told[0], "Normal NewThing a new thing") || !strings.HasPrefix(told[1], "Warning Odd") {
		t.Errorf("events %q", told)
	}
}

// An error of Report is a failure like any other. Report gets the outcome of Decide and Act.
func TestReportsFail(t *testing.T) {
	w := newWorld(t)
	w.kind.report = errOdd
	o := w.create("tenant-a", "app", nil)
	if again := w.reconcile(o).RequeueAfter; again > 2*time.Second || w.ready(o).Reason != "Odd" {
		t.Errorf("%+v, again after %s", w.ready(o), again)
	}
	w.kind.report = nil
	w.fails(errUnusable)
	w.reconcile(o)
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.URL = "" })
	w.reconcile(o)
	var reasons []string
	for _, outcome := range w.kind.outcomes {
		reasons = append(reasons, outcome.Reason)
	}
	if !slices.Equal(reasons, []string{"", "Unusable", meta.ReasonInvalidSpec}) {
		t.Errorf("reported %q", reasons)
	}
}

// Act may save the status while the work goes on, before or after the status shows progress. A save
// without changes writes nothing.
func TestActSaves(t *testing.T) {
	text := func(o *v1alpha1.OCIRepository) string {
		if o.Status.ObservedIgnore == nil {
			return ""
		}
		return *o.Status.ObservedIgnore
	}
	for name, pause := range map[string]time.Duration{"at once": 0, "after progress is shown": object.ProgressAfter + time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				o := w.create("tenant-a", "app", nil)
				var seen *v1alpha1.OCIRepository
				w.kind.saves = func(ctx context.Context, o *v1alpha1.OCIRepository, save func(context.Context) error) error {
					time.Sleep(pause)
					synctest.Wait()
					o.Status.ObservedIgnore = new("saved")
					must.Succeed(t, save(ctx))
					before := w.Writes.Statuses
					must.Succeed(t, save(ctx))
					if w.Writes.Statuses != before {
						t.Error("a save without changes writes")
					}
					seen = w.Get(o)
					time.Sleep(2 * object.ProgressAfter)
					o.Status.ObservedIgnore = new("done")
					return errOdd
				}
				w.reconcile(o)
				shown := len(seen.Status.Conditions) > 0 && seen.Status.Conditions[0].Status == metav1.ConditionUnknown
				if text(seen) != "saved" || shown != (pause > 0) {
					t.Errorf("saved: %+v", seen.Status)
				}
				if o := w.Get(o); text(o) != "done" || w.ready(o).Reason != "Odd" {
					t.Errorf("in the end: %+v", o.Status)
				}
			})
		})
	}
}

// A kind may save its status before the reconciliation ends. The next write has only the
// differences from the saved status.
func TestSavedBeforeTheEnd(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	saved := *w.Writes
	kind := &saving{toy: w.kind}
	w.Reconciler = object.New(w.Shared.Shared.Shared, "Saving", kind)
	w.reconcile(o)
	if kind.seen = w.Get(o); len(kind.seen.Status.Conditions) != 2 || w.Writes.Statuses != saved.Statuses+1 {
		t.Errorf("%d writes, %+v", w.Writes.Statuses-saved.Statuses, kind.seen.Status.Conditions)
	}
}

// saving is a toy whose Report sets a condition and saves the status.
type saving struct {
	*toy

	seen *v1alpha1.OCIRepository
}

func (*saving) Report(ctx context.Context, o *v1alpha1.OCIRepository, outcome object.Outcome) (string, error) {
	object.SetCondition(o, "Saved", metav1.ConditionTrue, "Saved", "")
	return o.Status.LastHandledReconcileAt, outcome.Save(ctx)
}

// TestSlowDeletion asserts that a slow deletion waits for a worker and has a deadline. Other deletions
// need no worker.
func TestSlowDeletion(t *testing.T) {
	for _, slow := range []bool{false, true} {
		w := newWorld(t)
		w.kind.slowFinalizer = slow
		o := w.create("tenant-a", "app", nil)
		w.reconcile(o)
		must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
		var woken []reconcile.Request
		w.r.StartWorkers(1, func(r reconcile.Request) { woken = append(woken, r) })
		if !w.r.Enter(asks("other")) {
			t.Fatal("there is no worker")
		}
		finalize := func() {
			_, err := w.r.Reconcile(t.Context(), asks("app"))
			must.Succeed(t, err)
		}
		finalize()
		if waits := len(w.kind.finalized) == 0; waits != slow {
			t.Errorf("slow %v: finalized %v beside another object", slow, w.kind.finalized)
		}
		if !slow {
			continue
		}
		if w.r.Leave(asks("other")); !slices.Contains(woken, asks("app")) {
			t.Fatalf("woken %v", woken)
		}
		finalize()
		if len(w.kind.finalized) != 1 || !w.kind.timely {
			t.Errorf("finalized %v, with a deadline %v", w.kind.finalized, w.kind.timely)
		}
		if !w.r.Enter(asks("other")) {
			t.Error("the deletion keeps the worker")
		}
	}
}

func TestSuspended(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.Request(o, "first")
	w.reconcile(o)
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
	w.Request(o, "now")
	result := w.reconcile(o)
	if got := w.ready(o); got.Reason != meta.ReasonSuspended || got.Status != metav1.ConditionTrue || result.RequeueAfter != 0 {
		t.Errorf("Ready is %+v, again after %s", got, result.RequeueAfter)
	}
	if len(w.kind.acted) != 1 || w.Get(o).Status.LastHandledReconcileAt != "first" || !w.kind.outcomes[1].Suspended {
		t.Error("a suspended object was worked on")
	}
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = false })
	if w.reconcile(o); w.ready(o).Reason != meta.ReasonSucceeded || w.Get(o).Status.LastHandledReconcileAt != "now" {
		t.Errorf("resumed: %+v", w.Get(o).Status)
	}
	never := w.create("tenant-a", "never", func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
	w.reconcile(never)
	if got := w.ready(never); got.Status != metav1.ConditionFalse || got.Reason != meta.ReasonSuspended {
		t.Errorf("suspended from the beginning: %+v", got)
	}
}

func TestSuspensionWinsOverNonsense(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Suspend, o.Spec.URL = true, "" })
	if w.reconcile(o); w.ready(o).Reason != meta.ReasonSuspended {
		t.Errorf("%+v", w.ready(o))
	}
}

// forgetting is a Metrics that records the objects whose metrics it removed.
type forgetting struct{ what string }

func (f *forgetting) Forget(kind, namespace, name string) {
	f.what += kind + "/" + namespace + "/" + name
}

func TestDeletedObjectLeavesNothing(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	forgotten := &forgetting{}
	w.Shared.Forgetter = forgotten
	must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
	for range 2 { // the second call finds no object
		if result := w.Attempt(o); result.RequeueAfter != 0 {
			t.Fatalf("delete: %+v", result)
		}
	}
	if err := w.Kube.Get(t.Context(), client.ObjectKeyFromObject(o), &v1alpha1.OCIRepository{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the object is still there: %v", err)
	}
	if !slices.Equal(w.kind.finalized, []string{"app"}) || forgotten.what != "OCIRepository/tenant-a/app" {
		t.Errorf("finalized %q, forgot %q", w.kind.finalized, forgotten.what)
	}
}

// TestDeletionOfALargeObject has a cache with a stub of a deleted object. The API server has the
// object itself, no object, or a new object with the same name. Only the deleted object must be
// finalized. If the API server fails, the deletion must be tried again.
func TestDeletionOfALargeObject(t *testing.T) {
	for name, c := range map[string]struct {
		gone, successor bool
		list            error // error of the API server
		finalized       []string
	}{
		"deleted":             {finalized: []string{"app"}},
		"gone":                {gone: true},
		"a new object":        {gone: true, successor: true},
		"an API server fails": {list: errOdd},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.create("tenant-a", "app", nil)
			w.reconcile(o)
			must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
			stub := w.Get(o)
			for i := range 1000 {
				metav1.SetMetaDataLabel(&stub.ObjectMeta, fmt.Sprint("key-", i), "")
			}
			_, err := object.Remember(stub)
			must.Succeed(t, err)
			if c.gone {
				gone := w.Get(o)
				gone.Finalizers = nil
				must.Succeed(t, w.Kube.Update(t.Context(), gone))
			}
			if c.successor {
				w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Finalizers = []string{meta.Finalizer} })
			}
			behind := true
			w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{Get: remembering(stub, &behind)})
			w.Shared.Live = interceptor.NewClient(w.Kube, interceptor.Funcs{
				List: func(ctx context.Context, kube client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if c.list != nil {
						return c.list
					}
					return kube.List(ctx, list, options...)
				},
			})
			_, err = w.Reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			if !errors.Is(err, c.list) || !slices.Equal(w.kind.finalized, c.finalized) {
				t.Errorf("finalized %q, want %q: %v", w.kind.finalized, c.finalized, err)
			}
		})
	}
}

// The finalizer stays while Finalize fails, and an event says what the deletion waits for.
func TestDeletionThatHasToWaitIsTold(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.Told()
	w.kind.finalize = errOdd
	must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
	if _, err := w.Reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err == nil {
		t.Error("no error, and so no retry")
	}
	if told := strings.Join(w.Told(), "\n"); !strings.Contains(told, "Warning Odd the object is not deleted yet: that was odd") {
		t.Errorf("told %q", told)
	}
	if got := w.Get(o); len(got.Finalizers) != 1 {
		t.Errorf("finalizers %v", got.Finalizers)
	}
}

// If Finalize cannot remove something, the object is still deleted, and an event says what stays.
func TestDeletionThatLeavesSomething(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.Told()
	w.kind.finalize = &object.LeftoverError{Message: "Secret x stays"}
	must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
	_, err := w.Reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	must.Succeed(t, err)
	if told := w.Told(); len(told) != 1 || !strings.Contains(told[0], "Warning ContentStays Secret x stays") {
		t.Errorf("told %q", told)
	}
	if err := w.Kube.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		t.Errorf("the object is still there: %v", err)
	}
}

// The API server refuses a second event of the same object version, reason and note. If Finalize
// fails again, no second event is made, even while the cache is behind.
func TestDeletionThatWaitsLongIsToldOnce(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.kind.finalize = errOdd
	must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
	before, behind := w.Get(o), false
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{Get: remembering(before, &behind)})
	w.Told()
	for try, wants := range []int{1, 0, 0} {
		behind = try == 1
		_, _ = w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		if told := w.Told(); len(told) != wants {
			t.Errorf("try %d: told %q, want %d events", try, told, wants)
		}
	}
}

func TestControllerThatEndsWritesNothing(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	before := w.Get(o)
	ctx, cancel := context.WithCancel(t.Context())
	w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { cancel(); return "", errOdd }
	if _, err := w.Reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := w.Get(o); got.ResourceVersion != before.ResourceVersion || len(w.kind.outcomes) != 1 {
		t.Errorf("status was written: %+v", controllertest.Ready(got))
	}
}

// TestConflictOfADeletionBeginsAnew changes an object while its finalizer is removed. After such a
// conflict, the deletion must begin again in a second. The pause must not grow with earlier errors.
func TestConflictOfADeletionBeginsAnew(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	must.Succeed(t, w.Kube.Delete(t.Context(), w.Get(o)))
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return apierrors.NewConflict(v1alpha1.GroupVersion().WithResource("ocirepositories").GroupResource(), o.GetName(), errOdd)
		},
	})
	if result := w.Attempt(o); result.RequeueAfter == 0 || result.RequeueAfter > 2*time.Second {
		t.Errorf("%+v", result)
	}
}

func TestConflictBeginsAnew(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.kind.act = func(o *v1alpha1.OCIRepository) (string, error) {
		// The object changes while Act runs.
		w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Interval.Duration = time.Hour })
		return "", errOdd
	}
	if result := w.Attempt(o); result.RequeueAfter == 0 || result.RequeueAfter > 2*time.Second {
		t.Errorf("%+v", result)
	}
	if got := w.Get(o); got.Status.ObservedGeneration != 1 || controllertest.Ready(got).Reason != meta.ReasonSucceeded {
		t.Errorf("the status speaks of a spec that was not read: %+v", got.Status)
	}
	w.kind.act = nil
	w.reconcile(o)
}
