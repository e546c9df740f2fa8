package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// hasCondition returns a check for a condition of a Kustomization: its status, its reason, and texts in
// its message.
func hasCondition(kind string, status metav1.ConditionStatus, reason string, texts ...string) func(*v1alpha1.Kustomization) error {
	return func(o *v1alpha1.Kustomization) error {
		c := apimeta.FindStatusCondition(o.Status.Conditions, kind)
		ok := c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == o.Generation
		for _, text := range texts {
			ok = ok && strings.Contains(c.Message, text)
		}
		return wantf(ok, "%+v", o.Status.Conditions)
	}
}

// TestKustomizationHealth waits for objects until they are healthy, and tells which are not. The test
// writes the status of a Deployment, because the control plane has no controller for Deployments.
func TestKustomizationHealth(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	const web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: web}}\n" +
		"  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: example.com/web}]}\n"
	tn := newApplyTenant(t, "apply-health", map[string]string{"web.yaml": web, "one.yaml": configMapOf("one", "first")})
	startApplying(t, nil, tn)
	o := tn.kustomization("app")
	o.Spec.Wait, o.Spec.Timeout, o.Spec.Interval = true, &metav1.Duration{Duration: 5 * time.Minute}, metav1.Duration{Duration: time.Second}
	create(t, o)
	after := tn.kustomization("after")
	after.Spec.NamePrefix = "after-"
	after.Spec.DependsOn = []v1alpha1.KustomizationDependency{{
		LocalReference: meta.LocalReference{Name: "app"}, ReadyExpr: "dep.status.conditions.exists(c, c.type == 'Healthy' && c.status == 'True')",
	}}
	create(t, after)
	await(t, o, "it waits", hasCondition(meta.ConditionReady, metav1.ConditionUnknown, meta.ReasonProgressing, "Deployment/apply-health/web"))
	await(t, o, "it waits", hasCondition(meta.ConditionHealthy, metav1.ConditionUnknown, meta.ReasonProgressing))
	await(t, after, "it waits", unapplied(meta.ReasonDependencyNotReady, "readyExpr is false"))
	if o.Status.LastAppliedRevision != "" || len(o.Status.History) > 0 || o.Status.Inventory == nil {
		t.Errorf("while it waits: %+v", o.Status)
	}
	// A change is undone also during the wait. The status stays the same then, so the second event makes
	// a series of the first.
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "one"}}
	for range 2 {
		patch(t, one, func(o *corev1.ConfigMap) { o.Data["key"] = "by hand" })
		await(t, one, "the change is undone", valueOf("first"))
	}
	eventually(t, "the event becomes a series", func(ctx context.Context) error {
		events, err := apiserver.EventsV1().Events(tn.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		isSeries := func(e eventsv1.Event) bool {
			return e.Regarding.Name == "app" && e.Reason == "Applied" && e.Series != nil
		}
		return wantf(slices.ContainsFunc(events.Items, isSeries), "%d events", len(events.Items))
	})

	deployment := &unstructured.Unstructured{}
	deployment.SetAPIVersion("apps/v1")
	deployment.SetKind("Deployment")
	deployment.SetNamespace(tn.namespace)
	deployment.SetName("web")
	report := func(available, progress string) {
		t.Helper()
		must(t, "read the Deployment", objects.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment))
		before := deployment.DeepCopy()
		condition := func(kind, reason string) any {
			return map[string]any{"type": kind, "status": available, "reason": reason}
		}
		deployment.Object["status"] = map[string]any{
			"observedGeneration": deployment.GetGeneration(), "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
			"conditions": []any{condition("Available", "Test"), condition("Progressing", progress)},
		}
		must(t, "write the status of the Deployment", objects.Status().Patch(t.Context(), deployment, client.MergeFrom(before)))
	}
	report("True", "NewReplicaSetAvailable")
	await(t, o, "it is Ready", hasCondition(meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "applied revision 1.0.0"))
	await(t, o, "it is healthy", hasCondition(meta.ConditionHealthy, metav1.ConditionTrue, meta.ReasonSucceeded, "2 objects are healthy"))
	if h := o.Status.History; len(h) != 1 || h[0].LastReconciledStatus != meta.ReasonSucceeded || h[0].TotalReconciliations != 1 || h[0].Metadata["revision"] != o.Status.LastAppliedRevision {
		t.Errorf("the history is %+v", h)
	}
	// The Deployment of this Kustomization does not become healthy, but nobody waits for it.
	await(t, after, "it is applied", hasCondition(meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded))

	t.Run("at rest", func(t *testing.T) {
		before := o.ResourceVersion
		time.Sleep(3 * time.Second) // three intervals
		must(t, "read the Kustomization", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if o.ResourceVersion != before {
			t.Errorf("the status is written although nothing changes: %+v", o.Status)
		}
	})
	t.Run("an object that fails", func(t *testing.T) {
		report("False", "ProgressDeadlineExceeded")
		await(t, o, "it is not Ready", unapplied(meta.ReasonHealthCheckFailed, "Deployment/apply-health/web", "Progress deadline exceeded"))
		await(t, o, "it is not healthy", hasCondition(meta.ConditionHealthy, metav1.ConditionFalse, meta.ReasonHealthCheckFailed))
		report("True", "NewReplicaSetAvailable")
		await(t, o, "it is Ready again", hasCondition(meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded))
		if h := o.Status.History; len(h) != 1 || h[0].TotalReconciliations != 3 {
			t.Errorf("the history is %+v", h)
		}
	})
	t.Run("listed objects", func(t *testing.T) {
		gated := tn.kustomization("gated")
		gated.Spec.NamePrefix = "gated-"
		gated.Spec.Timeout = &metav1.Duration{Duration: 3 * time.Second}
		gated.Spec.HealthChecks = []v1alpha1.HealthCheck{{APIVersion: "v1", Kind: "ConfigMap", Name: "gate"}}
		gated.Spec.HealthCheckExprs = []v1alpha1.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap", Current: "data.state == 'open'", Failed: "data.state == 'broken'"}}
		create(t, gated)
		await(t, gated, "the object is missing", unapplied(meta.ReasonHealthCheckFailed, "ConfigMap/apply-health/gate (the object does not exist)"))
		gate := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "gate"}, Data: map[string]string{"state": "closed"}}
		create(t, gate)
		await(t, gated, "the object is not ready", unapplied(meta.ReasonHealthCheckFailed, "the expressions failed, current are false"))
		patch(t, gate, func(o *corev1.ConfigMap) { o.Data["state"] = "open" })
		await(t, gated, "it is Ready", hasCondition(meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded))
		patch(t, gate, func(o *corev1.ConfigMap) { o.Data["state"] = "broken" })
		await(t, gated, "the object has failed", unapplied(meta.ReasonHealthCheckFailed, "the expression failed is true"))
	})
	t.Run("an object that fails during the wait", func(t *testing.T) {
		first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "first"}, Data: map[string]string{"state": "open"}}
		create(t, first)
		pair := tn.kustomization("pair")
		pair.Spec.NamePrefix = "pair-"
		pair.Spec.Interval, pair.Spec.Timeout = metav1.Duration{Duration: time.Hour}, &metav1.Duration{Duration: 5 * time.Minute}
		pair.Spec.HealthChecks = []v1alpha1.HealthCheck{{APIVersion: "v1", Kind: "ConfigMap", Name: "first"}, {APIVersion: "v1", Kind: "ConfigMap", Name: "second"}}
		pair.Spec.HealthCheckExprs = []v1alpha1.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap", Current: "data.state == 'open'", Failed: "data.state == 'broken'"}}
		create(t, pair)
		await(t, pair, "it waits", hasCondition(meta.ConditionReady, metav1.ConditionUnknown, meta.ReasonProgressing, "ConfigMap/apply-health/second"))
		patch(t, first, func(o *corev1.ConfigMap) { o.Data["state"] = "broken" })
		create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "second"}, Data: map[string]string{"state": "open"}})
		await(t, pair, "it is not Ready", unapplied(meta.ReasonHealthCheckFailed, "ConfigMap/apply-health/first (the expression failed is true)"))
		patch(t, first, func(o *corev1.ConfigMap) { o.Data["state"] = "open" })
		await(t, pair, "it is Ready", hasCondition(meta.ConditionHealthy, metav1.ConditionTrue, meta.ReasonSucceeded, "2 objects are healthy"))
	})
	t.Run("refused", func(t *testing.T) {
		foreign := tn.kustomization("foreign")
		foreign.Spec.NamePrefix = "foreign-"
		foreign.Spec.HealthChecks = []v1alpha1.HealthCheck{{APIVersion: "v1", Kind: "Secret", Name: "token", Namespace: "kube-system"}}
		create(t, foreign)
		await(t, foreign, "another namespace is refused", unapplied(meta.ReasonHealthCheckFailed, "get Secret/kube-system/token as system:serviceaccount:apply-health:"+deployer, "cannot get"))
		invalid := tn.kustomization("invalid")
		invalid.Spec.Wait, invalid.Spec.NamePrefix = true, "invalid-"
		invalid.Spec.HealthCheckExprs = []v1alpha1.HealthCheckExpr{{APIVersion: "example.com/v1", Current: "status."}}
		create(t, invalid)
		await(t, invalid, "no CEL", unapplied(meta.ReasonInvalidSpec, "spec.healthCheckExprs[0].current: it is no valid CEL"))
		hostile := tn.kustomization("hostile")
		hostile.Spec.NamePrefix, hostile.Spec.Wait = "hostile-", true
		hostile.Spec.HealthCheckExprs = []v1alpha1.HealthCheckExpr{{
			APIVersion: "v1", Kind: "ConfigMap",
			Current: "[1,2,3,4,5,6,7,8,9].map(a, 'x').join('').replace('', 'yyyyyyyyyyyyyyyyyyyy')" + strings.Repeat(".replace('', 'yyyyyyyyyyyyyyyyyyyy')", 8) + " == ''",
		}}
		create(t, hostile)
		await(t, hostile, "the expression is ended", unapplied(meta.ReasonHealthCheckFailed, "its expressions were ended", "MiB of memory"))
	})
	judgeImpersonation(t)
}
