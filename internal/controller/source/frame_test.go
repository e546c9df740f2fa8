package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// The deadline of a fetch comes from the object's timeout.
func TestFetchHasTheTimeoutOfTheSpec(t *testing.T) {
	w := newWorld(t)
	kind := &slow{toy: w.kind}
	w.Reconciler = source.New(w.Shared, named("Slow"), kind)
	for want, timeout := range map[time.Duration]*metav1.Duration{
		time.Minute:      nil,
		20 * time.Minute: {Duration: 20 * time.Minute},
	} {
		o := w.create("tenant-a", strings.ToLower(want.String()), func(o *v1alpha1.OCIRepository) { o.Spec.Timeout = timeout })
		w.Attempt(o)
		if kind.left > want || kind.left < want-10*time.Second {
			t.Errorf("the fetch has %s, want %s", kind.left, want)
		}
	}
}

// slow is a toy whose Fetch records how much time is left until its deadline.
type slow struct {
	*toy

	left time.Duration
}

func (k *slow) Fetch(ctx context.Context, _ *v1alpha1.OCIRepository, _ string, _ source.Call) error {
	deadline, _ := ctx.Deadline()
	k.left = time.Until(deadline)
	return nil
}

// An object is checked in this order: first for suspension, then its identity, then its spec.
// Requests are made only after these checks.
func TestWhatIsDoneFirst(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		edit    func(*v1alpha1.OCIRepository)
		reason  string
		decided bool
	}{
		"fetched":            {func(*v1alpha1.OCIRepository) {}, meta.ReasonSucceeded, true},
		"suspended-nonsense": {func(o *v1alpha1.OCIRepository) { o.Spec.Suspend, o.Spec.URL = true, "" }, meta.ReasonSuspended, false},
		"nonsense":           {func(o *v1alpha1.OCIRepository) { o.Spec.URL = "" }, meta.ReasonInvalidSpec, true},
		"nobody":             {func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "" }, "NotGranted", false},
		"nobodys-nonsense":   {func(o *v1alpha1.OCIRepository) { o.Spec.URL, o.Spec.ServiceAccountName = "", "" }, "NotGranted", false},
		"unknown-provider":   {func(o *v1alpha1.OCIRepository) { o.Spec.Provider = "azure" }, meta.ReasonUnsupportedProvider, false},
		"out-of-bounds":      {func(o *v1alpha1.OCIRepository) { o.Spec.Interval.Duration = 0 }, meta.ReasonInvalidSpec, false},
	} {
		w.kind.calls = nil
		o := w.create("tenant-a", name, c.edit)
		w.reconcile(o)
		if got := w.ready(o); got.Reason != c.reason {
			t.Errorf("%s: %+v", name, got)
		}
		if decided := len(w.kind.calls) == 1; decided != c.decided {
			t.Errorf("%s: the kind decided %d times", name, len(w.kind.calls))
		} else if decided && w.kind.calls[0].Identity.Subject.Name() != "puller" {
			t.Errorf("%s: the kind decided for %+v", name, w.kind.calls[0])
		}
	}
	if len(w.kind.fetched) != 1 || w.kind.fetched[0] != "fetched" {
		t.Errorf("fetched %v", w.kind.fetched)
	}
}

// Objects that name no service account use the default service account.
func TestDefaultAccountCounts(t *testing.T) {
	w := newWorld(t)
	w.Shared.Rules.DefaultServiceAccount = "default"
	o := w.create("tenant-a", "unnamed", func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "" })
	w.reconcile(o)
	if got := w.ready(o); got.Reason != meta.ReasonSucceeded || w.kind.calls[0].Identity.Subject.Name() != "default" {
		t.Errorf("%+v, %+v", got, w.kind.calls)
	}
}

func TestNewArtifactsAreTold(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	for _, found := range [][2]string{{"v1", "a"}, {"v1", "a"}, {"v2", "a"}, {"v2", "b"}, {"v2", "b"}} {
		w.findsContent(found[0], found[1])
		w.reconcile(o)
	}
	told := w.Told()
	if len(told) != 3 || !slices.IsSortedFunc(told, strings.Compare) || !strings.HasPrefix(told[0], "Normal NewArtifact stored artifact for revision v1") {
		t.Errorf("events %q", told)
	}
}

// If a new revision has the same content, the artifact keeps its LastUpdateTime.
func TestSameContentKeepsItsTime(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.findsContent("v1", "same")
	w.reconcile(o)
	got := w.Get(o)
	long := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	got.Status.Artifact.LastUpdateTime = long
	must.Succeed(t, w.Kube.Status().Update(t.Context(), got))
	w.findsContent("v2", "same")
	w.reconcile(o)
	if a := w.Get(o).Status.Artifact; a.Revision != "v2" || !a.LastUpdateTime.Equal(&long) {
		t.Errorf("artifact %+v", a)
	}
}

func TestDeletionWaitsForTheStore(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.Told()
	must.Succeed(t, errors.Join(w.Kube.Delete(t.Context(), w.Get(o)), w.Shared.Artifacts.Store.Close()))
	if _, err := w.Reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err == nil {
		t.Error("no error, and so no retry")
	}
	if told := strings.Join(w.Told(), "\n"); !strings.Contains(told, "Warning StorageFailed the object is not deleted yet") {
		t.Errorf("told %q", told)
	}
	if got := w.Get(o); len(got.Finalizers) != 1 {
		t.Errorf("finalizers %v", got.Finalizers)
	}
}

// If the artifact of a suspended source is lost, the message says that there is no earlier result.
func TestSuspendedAndLost(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSuspended, "the last result stays: stored artifact for revision v1")
	must.Succeed(t, w.Shared.Artifacts.Store.Remove(controllertest.Owner(o)))
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonSuspended, "there is no earlier result")
}

// If the store is full, the message says which flag to raise, and the earlier artifact stays.
func TestStoreThatIsFull(t *testing.T) {
	for flag, options := range map[string]store.Options{
		"--artifact-store-max-size or ask": {MaxBytes: 2000},
		"--artifact-namespace-max-size":    {MaxBytes: 8000, MaxNamespaceBytes: 400},
	} {
		w := newWorldWith(t, options)
		w.finds("v1")
		o := w.create("tenant-a", "app", nil)
		w.reconcile(o)
		w.findsContent("v2", strings.Repeat("x", 500))
		w.reconcile(o)
		w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonStorageFull, "have the administrator raise "+flag)
		if got := w.Get(o).Status.Artifact; got == nil || got.Revision != "v1" {
			t.Errorf("artifact %+v", got)
		}
	}
}

// Each failure of an artifact gets the right reason and the right time of the next attempt.
func TestFailuresOfArtifacts(t *testing.T) {
	putting := func(w *world, err error) {
		w.kind.fetch = func(_ *v1alpha1.OCIRepository, call source.Call) error {
			_, err := w.Shared.Artifacts.Put(t.Context(), call.Owner, nil, "v1", func(io.Writer) error { return err })
			return err
		}
	}
	for name, c := range map[string]struct {
		fail   func(*world)
		reason string
		seldom bool // no retry before the interval has passed
		says   string
	}{
		"archive": {func(w *world) {
			putting(w, &archive.Error{Reason: archive.ReasonLink, Err: errors.New("x")})
		}, meta.ReasonArchiveRefused, true, ""},
		"full while reading": {func(w *world) { putting(w, fmt.Errorf("%w: x", store.ErrFull)) }, meta.ReasonStorageFull, false, ""},
		"volume":             {func(w *world) { putting(w, store.ErrVolume) }, meta.ReasonStorageFull, false, "enlarge the volume"},
		"a kind's own":       {func(w *world) { putting(w, errOdd) }, "Odd", false, ""},
		"disk": {func(w *world) {
			w.finds("v1")
			_ = w.Shared.Artifacts.Store.Close()
		}, meta.ReasonStorageFailed, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.create("tenant-a", "app", nil)
			c.fail(w)
			again := w.reconcile(o).RequeueAfter
			w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, c.reason, c.says)
			if (again > 9*time.Minute) != c.seldom {
				t.Errorf("again after %s", again)
			}
		})
	}
}

func TestDurationsAreMeasured(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewPedanticRegistry()
	must.Succeed(t, registry.Register(w.Shared.Durations))
	w.reconcile(w.create("tenant-a", "well", nil))
	w.fails(errOdd)
	for i := range 100 {
		w.reconcile(w.create("tenant-b", fmt.Sprint("odd-", i), nil))
	}
	w.reconcile(w.create("tenant-b", "nonsense", func(o *v1alpha1.OCIRepository) { o.Spec.URL = "" }))
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics break the conventions: %+v, %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	fetches := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		fetches[fmt.Sprint(m.GetLabel())] = m.GetHistogram().GetSampleCount()
	}
	if len(fetches) != 2 {
		t.Fatalf("fetches %v", fetches)
	}
	for labels, n := range fetches {
		well, odd := strings.Contains(labels, "success"), strings.Contains(labels, "Odd")
		if !strings.Contains(labels, "OCIRepository") || well && n != 1 || odd && n != 100 || well == odd {
			t.Errorf("%d fetches of %s", n, labels)
		}
	}
}
