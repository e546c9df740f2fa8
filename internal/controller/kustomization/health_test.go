package kustomization

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fluxcd/pkg/ssa"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/desired"
	"github.com/lanyard-dev/lanyard/internal/expression/expressiontest"
	"github.com/lanyard-dev/lanyard/internal/health"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// pod is an object that is healthy once its phase is Succeeded.
func pod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: "uid"}, Status: corev1.PodStatus{Phase: phase}}
}

func podTarget(name string) target {
	e, err := apply.NewEntry(corev1.SchemeGroupVersion.WithKind("Pod"), "team-a", name)
	if err != nil {
		panic(err)
	}
	return target{Entry: e}
}

// newRun returns a reconciliation of an object that waits for all its objects.
func newRun(t *testing.T, o *v1alpha1.Kustomization, all ...client.Object) *run {
	t.Helper()
	k := newKind(t, append(all, source())...)
	c := k.Live.(client.Client)
	p, err := k.Decide(t.Context(), o)
	must.Succeed(t, err)
	return &run{
		kind: k, o: o, owner: apply.Owner{Namespace: o.Namespace, Name: o.Name}, plan: p, began: time.Now(), judge: health.New(nil, "team-a", nil, false),
		applier: apply.New(cluster{c}, apply.User{Name: "user"}, apply.Owner{}, false), watch: watch{healthy: &apply.Versions{}},
	}
}

// TestAwaitHealth waits until an object is healthy, and gives up at the timeout.
func TestAwaitHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := kustomization()
		o.Spec.Wait, o.Spec.Timeout = true, &metav1.Duration{Duration: time.Minute}
		begun, done := pod("begun", corev1.PodPending), pod("done", corev1.PodSucceeded)
		r := newRun(t, o, begun, done)
		c := r.Live.(client.Client)
		targets := []target{podTarget("done"), podTarget("begun"), podTarget("missing")}
		start, looks := time.Now(), 0
		for {
			err := r.awaitHealth(t.Context(), targets)
			waits, ok := errors.AsType[*waitingError](err)
			if !ok {
				gone, ok := errors.AsType[*unhealthyError](err)
				if !ok || len(gone.objects) != 2 || !strings.Contains(err.Error(), "Pod/team-a/missing (the object does not exist)") || strings.Contains(err.Error(), "done") {
					t.Errorf("at the end: %v", err)
				}
				break
			}
			looks++
			if waits.pause < time.Second || waits.pause > 5*time.Second {
				t.Errorf("the pause is %s", waits.pause)
			}
			time.Sleep(waits.pause)
			targets = r.watch.pending
			if !r.watch.waits(o) && time.Since(r.watch.compared) < o.Spec.Interval.Duration {
				t.Error("the wait has ended")
			}
		}
		if waited := time.Since(start); waited < time.Minute || waited > 62*time.Second || looks < 12 || looks > 30 {
			t.Errorf("gave up after %s and %d looks", waited, looks)
		}
		begun.Status.Phase = corev1.PodSucceeded
		must.Succeed(t, errors.Join(c.Status().Update(t.Context(), begun), c.Create(t.Context(), pod("missing", corev1.PodSucceeded))))
		must.Succeed(t, r.awaitHealth(t.Context(), r.watch.pending))
		if r.watch.waits(o) || len(r.watch.pending) > 0 {
			t.Errorf("%+v", r.watch)
		}
	})
}

// TestFailedObject gives up at once if an object has failed, and names this object first.
func TestFailedObject(t *testing.T) {
	o := kustomization()
	o.Spec.Wait = true
	broken := pod("broken", corev1.PodPending)
	broken.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
	broken.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
	r := newRun(t, o, broken)
	var targets []target
	for i := range 10 {
		targets = append(targets, podTarget(fmt.Sprint("missing-", i)))
	}
	err := r.awaitHealth(t.Context(), append(targets, podTarget("broken")))
	if _, ok := errors.AsType[*unhealthyError](err); !ok || !strings.HasPrefix(err.Error(), "these objects are not healthy: Pod/team-a/broken") || !strings.Contains(err.Error(), "6 more") {
		t.Errorf("%v", err)
	}
}

// TestTargets checks which objects are looked at: those whose version was not healthy before, and never
// the Kustomization itself.
func TestTargets(t *testing.T) {
	o := kustomization()
	o.Spec.Wait = true
	r := newRun(t, o)
	self, err := apply.NewEntry(v1alpha1.GroupVersion().WithKind("Kustomization"), "team-a", "app")
	must.Succeed(t, err)
	result := &apply.Result{Changes: []apply.Change{
		{Entry: podTarget("a").Entry, Action: ssa.CreatedAction},
		{Entry: podTarget("b").Entry, Action: ssa.UnchangedAction},
		{Entry: podTarget("c").Entry, Action: ssa.SkippedAction},
		{Entry: self, Action: ssa.UnchangedAction},
	}}
	has := func(e apply.Entry, versions *apply.Versions) bool {
		return e.Key.Name == "a" && versions == r.watch.healthy
	}
	r.watch.targets = r.targets(nil, result)
	if got := r.unknown(has); !slices.Equal(got, []target{podTarget("b")}) || len(r.watch.targets) != 2 {
		t.Errorf("%+v", got)
	}
	o.Spec.Wait = false
	o.Spec.HealthChecks = []v1alpha1.HealthCheck{{APIVersion: "v1", Kind: "Pod", Name: "a"}, {APIVersion: "toolkit.lanyard.dev/v1alpha1", Kind: "Kustomization", Name: "app"}}
	r = newRun(t, o)
	r.watch.targets = r.targets(nil, result)
	if got := r.unknown(has); !slices.Equal(got, []target{podTarget("a")}) {
		t.Errorf("%+v", got)
	}
	o.Spec.HealthChecks = nil
	if got := newRun(t, o).targets(nil, result); len(got) > 0 {
		t.Errorf("nobody asks for healthy objects: %+v", got)
	}
}

// TestVanishedJob counts a Job that its own time to live has removed as healthy.
func TestVanishedJob(t *testing.T) {
	o := kustomization()
	o.Spec.Wait = true
	r := newRun(t, o)
	gone := podTarget("gone")
	gone.vanishes = true
	must.Succeed(t, r.awaitHealth(t.Context(), []target{gone}))
}

// TestHealthFields refuses fields that name nothing.
func TestHealthFields(t *testing.T) {
	for says, change := range map[string]func(*v1alpha1.Kustomization){
		"spec.healthChecks[0].apiVersion": func(o *v1alpha1.Kustomization) {
			o.Spec.HealthChecks = []v1alpha1.HealthCheck{{APIVersion: "a/b/c", Kind: "Pod", Name: "x"}}
		},
		"spec.healthChecks[0]:": func(o *v1alpha1.Kustomization) {
			o.Spec.HealthChecks = []v1alpha1.HealthCheck{{APIVersion: "../v1", Kind: "Pod", Name: "x"}}
		},
		"spec.healthCheckExprs[0].apiVersion": func(o *v1alpha1.Kustomization) {
			o.Spec.HealthCheckExprs = []v1alpha1.HealthCheckExpr{{Current: "true"}}
		},
		"spec.healthCheckExprs[0].current": func(o *v1alpha1.Kustomization) {
			o.Spec.HealthCheckExprs = []v1alpha1.HealthCheckExpr{{APIVersion: "a/v1", Failed: "true"}}
		},
		"spec.healthCheckExprs[1]:": func(o *v1alpha1.Kustomization) {
			o.Spec.HealthCheckExprs = []v1alpha1.HealthCheckExpr{{APIVersion: "a/v1", Kind: "K", Current: "true"}, {APIVersion: "a/v2", Kind: "K", Current: "false"}}
		},
		"spec.healthCheckExprs[0]:": func(o *v1alpha1.Kustomization) {
			o.Spec.HealthCheckExprs = []v1alpha1.HealthCheckExpr{{APIVersion: "a/v1", Current: strings.Repeat(" ", maxExpression) + "true"}}
		},
	} {
		o := kustomization()
		change(o)
		if _, err := newKind(t, source()).Decide(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestReportHealth checks the condition Healthy after each outcome.
func TestReportHealth(t *testing.T) {
	waits, broken := &waitingError{}, &unhealthyError{}
	for name, c := range map[string]struct {
		outcome object.Outcome
		want    metav1.ConditionStatus
		reason  string
	}{
		"healthy":   {object.Outcome{}, metav1.ConditionTrue, meta.ReasonSucceeded},
		"waiting":   {object.Outcome{Err: waits, Reason: meta.ReasonProgressing}, metav1.ConditionUnknown, meta.ReasonProgressing},
		"unhealthy": {object.Outcome{Err: broken, Reason: meta.ReasonHealthCheckFailed}, metav1.ConditionFalse, meta.ReasonHealthCheckFailed},
		"failed":    {object.Outcome{Err: errors.New("x"), Reason: meta.ReasonApplyRefused}, metav1.ConditionUnknown, meta.ReasonApplyRefused},
		"suspended": {object.Outcome{Suspended: true}, metav1.ConditionFalse, "Earlier"},
	} {
		o, k := kustomization(), newKind(t)
		o.Spec.Wait, o.Generation = true, 7
		o.Status.Conditions = []metav1.Condition{{Type: meta.ConditionHealthy, Status: metav1.ConditionFalse, Reason: "Earlier"}}
		k.reportHealth(o, c.outcome)
		got := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionHealthy)
		if got == nil || got.Status != c.want || got.Reason != c.reason || got.ObservedGeneration != 7 {
			t.Errorf("%s: %+v", name, got)
		}
		o.Spec.Wait = false
		if k.reportHealth(o, c.outcome); len(o.Status.Conditions) > 0 {
			t.Errorf("%s, and nobody asks: %+v", name, o.Status.Conditions)
		}
	}
}

// TestReadyExpr lets an expression decide whether another Kustomization is ready.
func TestReadyExpr(t *testing.T) {
	base := kustomization()
	base.Name, base.Labels = "base", map[string]string{"version": "2"}
	base.Status.Inventory = &v1alpha1.Inventory{Entries: []v1alpha1.InventoryEntry{{ID: "x", Version: "v1"}}}
	evaluator := expressiontest.New(t)
	for expr, says := range map[string]string{
		"dep.metadata.labels.version == self.metadata.labels.version": "",
		"size(dep.status.inventory.entries) == 1":                     "",
		"false":                   "Kustomization base is not ready: readyExpr is false",
		"dep.status.missing":      "is not ready: readyExpr: no such key: missing",
		"dep.":                    "spec.dependsOn[0].readyExpr: it is no valid CEL",
		strings.Repeat(" ", 5000): "spec.dependsOn[0].readyExpr: it has more than 4096 bytes",
	} {
		o := kustomization()
		o.Labels = map[string]string{"version": "2"}
		o.Spec.DependsOn = []v1alpha1.KustomizationDependency{{LocalReference: meta.LocalReference{Name: "base"}, ReadyExpr: expr}}
		k := newKind(t, base, o)
		k.Expressions = evaluator
		err := k.checkDependencies(t.Context(), o, "1")
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%.100s: %v", expr, err)
		}
	}
}

// TestHistory checks when an entry of the history changes.
func TestHistory(t *testing.T) { synctest.Test(t, testHistory) }

func testHistory(t *testing.T) {
	o, k := kustomization(), newKind(t)
	causes := map[string]error{
		"": nil, meta.ReasonProgressing: &waitingError{}, meta.ReasonHealthCheckFailed: &unhealthyError{}, meta.ReasonApplyRefused: &apply.Error{},
		meta.ReasonBuildFailed: &buildError{}, meta.ReasonArtifactUnavailable: &content.Error{}, "InventoryUnreadable": &desired.InventoryError{},
	}
	attempt := func(revision, digest string, changed bool, reason string) v1alpha1.HistoryEntry {
		o.Status.LastAttemptedRevision = revision
		time.Sleep(time.Second) // the times of a status have no fractions of seconds
		known, _ := k.Records.get(o)
		known.attempt.digest, known.attempt.began = digest, time.Now()
		if changed {
			known.attempt.changed = time.Now()
		}
		k.Records.set(o, known)
		k.reportHistory(o, object.Outcome{Reason: reason, Err: causes[reason]})
		if len(o.Status.History) == 0 {
			return v1alpha1.HistoryEntry{}
		}
		return o.Status.History[0]
	}
	if got := attempt("1", "", true, meta.ReasonBuildFailed); got.Digest != "" {
		t.Errorf("a failed build: %+v", got)
	}
	for i, c := range []struct {
		revision, digest string
		changed          bool
		reason           string
		want             string
	}{
		{"1", "a", true, meta.ReasonProgressing, " 0"},
		{"1", "a", false, "", "a Succeeded 1"},
		{"1", "a", false, "", "a Succeeded 1"},
		{"1", "a", true, "", "a Succeeded 2"},
		{"2", "a", false, "", "a Succeeded 3"},
		{"2", "a", false, "", "a Succeeded 3"},
		{"2", "a", false, meta.ReasonArtifactUnavailable, "a Succeeded 3"},
		{"2", "a", false, "InventoryUnreadable", "a Succeeded 3"},
		{"2", "a", false, meta.ReasonHealthCheckFailed, "a HealthCheckFailed 4"},
		{"2", "a", false, meta.ReasonHealthCheckFailed, "a HealthCheckFailed 4"},
		{"2", "b", true, meta.ReasonApplyRefused, "b ApplyRefused 1"},
		{"2", "a", true, "", "a Succeeded 5"},
		{"2", "c", true, "", "c Succeeded 1"},
		{"2", "d", true, "", "d Succeeded 1"},
		{"2", "e", true, "", "e Succeeded 1"},
		{"2", "f", true, "", "f Succeeded 1"},
	} {
		got := attempt(c.revision, c.digest, c.changed, c.reason)
		if text := fmt.Sprint(got.Digest, " ", got.LastReconciledStatus, " ", got.TotalReconciliations); strings.ReplaceAll(text, "  ", " ") != c.want {
			t.Errorf("step %d: %s, want %s", i, text, c.want)
		}
		if got.Digest != "" && (got.Metadata["revision"] != c.revision || got.FirstReconciled.IsZero() || got.LastReconciled.IsZero()) {
			t.Errorf("step %d: %+v", i, got)
		}
	}
	known, _ := k.Records.get(o)
	known.attempt.originRevision = "main@sha1:1234"
	k.Records.set(o, known)
	if got := attempt("2", "f", false, ""); got.TotalReconciliations != 2 || got.Metadata["originRevision"] != "main@sha1:1234" {
		t.Errorf("another revision of the source code: %+v", got)
	}
	if n := len(o.Status.History); n != maxHistory {
		t.Errorf("%d entries", n)
	}
}

// TestDigest checks that the digest of manifests with values of Secrets does not depend on the values.
func TestDigest(t *testing.T) {
	o := kustomization()
	r := newRun(t, o)
	digest := func(text string, secret bool) string {
		r.variables.Secret = secret
		d, err := r.digestOf([]*unstructured.Unstructured{{Object: map[string]any{"data": text}}})
		must.Succeed(t, err)
		return d
	}
	first, again := digest("a", false), digest("a", false)
	if first != again || first == digest("b", false) || !strings.HasPrefix(first, "sha256:") {
		t.Error("the digest is not of the manifests")
	}
	for _, password := range []string{"a", "b"} {
		d, err := r.digestOf([]*unstructured.Unstructured{{Object: map[string]any{"kind": "Secret", "data": password}}})
		if must.Succeed(t, err); d != digest("", true) {
			t.Error("the digest is of a Secret's values")
		}
	}
	if digest("a", true) != digest("b", true) {
		t.Error("the digest is of values of Secrets")
	}
	before := digest("a", true)
	if r.variables.Versions = []string{"2"}; digest("a", true) == before {
		t.Error("another version of a Secret has the same digest")
	}
	before = digest("a", true)
	if o.Spec.PostBuild = (&v1alpha1.PostBuild{Substitute: map[string]string{"a": "b"}}); digest("a", true) == before {
		t.Error("another variable has the same digest")
	}
}

func TestHealthyText(t *testing.T) {
	for objects, want := range map[int]string{1: "1 object is healthy", 2: "2 objects are healthy"} {
		if got := healthyText(objects); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
