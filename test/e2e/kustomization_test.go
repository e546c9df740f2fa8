package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const applyController = "lanyard-apply-controller"

// applyProgram is the apply controller.
type applyProgram struct{ *local.Program }

// startApplying installs the chart with the apply controller for the namespaces of some tenants, and
// starts the apply controller. The settings are further values below "apply". At the end of the test,
// the tenants' objects are removed, and then the program is stopped. The builds of the program are
// processes with little memory, in which the race detector cannot run.
func startApplying(t *testing.T, settings map[string]any, tenants ...*applyTenant) *applyProgram {
	t.Helper()
	return startApplyingWith(t, settings, nil, tenants...)
}

// startApplyingWith is startApplying with further values of the chart.
func startApplyingWith(t *testing.T, settings, further map[string]any, tenants ...*applyTenant) *applyProgram {
	t.Helper()
	apply := map[string]any{"enabled": true}
	maps.Copy(apply, settings)
	var namespaces []any
	for _, tn := range tenants {
		namespaces = append(namespaces, tn.namespace)
	}
	chart := map[string]any{"rbac": map[string]any{"tenantNamespaces": namespaces}, "apply": apply}
	maps.Copy(chart, further)
	install(t, chart)
	p := &applyProgram{}
	p.start(t)
	t.Cleanup(func() {
		for _, tn := range tenants {
			tn.clear(t)
		}
		p.stop(t)
		if log, _ := os.ReadFile(p.Log); strings.Contains(string(log), secretMark) {
			t.Error("the log has a value of a Secret")
		}
	})
	return p
}

func (p *applyProgram) start(t *testing.T) {
	t.Helper()
	var err error
	p.Program, err = world.StartProgram(t.Context(), local.ProgramOptions{Workload: applyController, Binary: binary(applyController)})
	must(t, "start the apply controller", err)
}

func (p *applyProgram) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopGrace)
	defer cancel()
	must(t, "stop the apply controller", p.Stop(ctx))
}

// applyTenant is a tenant with a source and an account that may apply.
type applyTenant struct {
	*tenant
	source *v1alpha1.OCIRepository
}

// newApplyTenant makes a tenant whose artifact has these files.
func newApplyTenant(t *testing.T, name string, files map[string]string) *applyTenant {
	t.Helper()
	tn := &applyTenant{tenant: newTenant(t, name)}
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: deployer}})
	grantRole(t, name, deployer, rbacv1.Subject{Kind: "ServiceAccount", Namespace: name, Name: deployer}, applierRules()...)
	tn.release(t, files)
	tn.source = tn.object("app")
	tn.source.Spec.Interval.Duration = time.Second
	create(t, tn.source)
	return tn
}

// release publishes files as the tenant's artifact.
func (tn *applyTenant) release(t *testing.T, files map[string]string) {
	t.Helper()
	var entries []entry
	for name, content := range files {
		entries = append(entries, file(name, content))
	}
	tn.push(t, "1.0.0", layer(t, entries...))
}

// kustomization returns a Kustomization that applies the tenant's artifact.
func (tn *applyTenant) kustomization(name string) *v1alpha1.Kustomization {
	return &v1alpha1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name},
		Spec: v1alpha1.KustomizationSpec{
			SourceRef: v1alpha1.SourceReference{Kind: v1alpha1.OCIRepositoryKind, Name: "app"}, Prune: true, ServiceAccountName: deployer,
			Interval: metav1.Duration{Duration: 2 * time.Second}, TargetNamespace: tn.namespace,
		},
	}
}

// applied is a check that a Kustomization is Ready, and that its inventory has these IDs.
func applied(ids ...string) func(o *v1alpha1.Kustomization) error {
	return func(o *v1alpha1.Kustomization) error {
		var got []string
		if o.Status.Inventory != nil {
			for _, e := range o.Status.Inventory.Entries {
				got = append(got, e.ID)
			}
		}
		return wantf(apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady) && slices.Equal(got, ids), "%+v, inventory %q", o.Status.Conditions, got)
	}
}

// unapplied is a check that a Kustomization is not Ready, for a reason and with texts in the
// message.
func unapplied(reason string, texts ...string) func(o *v1alpha1.Kustomization) error {
	return func(o *v1alpha1.Kustomization) error {
		c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
		ok := c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason && c.ObservedGeneration == o.Generation
		for _, text := range texts {
			ok = ok && strings.Contains(c.Message, text)
		}
		return wantf(ok, "%+v", o.Status.Conditions)
	}
}

// configMapOf returns a manifest without a namespace.
func configMapOf(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: %q}\n", name, value)
}

// valueOf returns a check for the value of a ConfigMap.
func valueOf(value string) func(*corev1.ConfigMap) error {
	return func(o *corev1.ConfigMap) error { return wantf(o.Data["key"] == value, "%v", o.Data) }
}

// TestKustomization applies, changes and prunes manifests of a tenant's OCIRepository, and refuses
// what the tenant may not do.
func TestKustomization(t *testing.T) {
	alone(t, "the chart grants more for the apply controller")
	tn := newApplyTenant(t, "apply-a", map[string]string{"app/one.yaml": configMapOf("one", "first"), "app/two.yaml": configMapOf("two", "${word}")})
	other := newApplyTenant(t, "apply-b", map[string]string{"one.yaml": configMapOf("one", "stolen")})
	program := startApplying(t, nil, tn, other)
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "words"}, StringData: map[string]string{"word": secretMark + "substituted"}})
	o := tn.kustomization("app")
	o.Spec.Path = "./app"
	o.Spec.PostBuild = &v1alpha1.PostBuild{SubstituteFrom: []v1alpha1.SubstituteReference{{Kind: "Secret", Name: "words"}}}
	create(t, o)
	await(t, o, "it is applied", applied("apply-a_one__ConfigMap", "apply-a_two__ConfigMap"))
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "one"}}
	two := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "two"}}
	await(t, two, "the variable is replaced", valueOf(secretMark+"substituted"))

	t.Run("drift", func(t *testing.T) {
		patch(t, one, func(o *corev1.ConfigMap) { o.Data["key"] = "by hand" })
		await(t, one, "the change is undone", valueOf("first"))
		must(t, "delete an object", objects.Delete(t.Context(), two))
		await(t, two, "the object is back", valueOf(secretMark+"substituted"))
	})
	t.Run("a new release", func(t *testing.T) {
		tn.release(t, map[string]string{"app/one.yaml": configMapOf("one", "second"), "app/three.yaml": configMapOf("three", "third")})
		await(t, o, "it is applied", applied("apply-a_one__ConfigMap", "apply-a_three__ConfigMap"))
		await(t, one, "it is changed", valueOf("second"))
		err := objects.Get(t.Context(), client.ObjectKeyFromObject(two), two)
		if !apierrors.IsNotFound(err) {
			t.Errorf("an object that left the artifact: %v", err)
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		program.stop(t)
		patch(t, one, func(o *corev1.ConfigMap) { o.Data["key"] = "by hand" })
		program.start(t)
		await(t, one, "the change is undone", valueOf("second"))
	})
	t.Run("refused by the API server", func(t *testing.T) {
		tn.release(t, map[string]string{"app/one.yaml": configMapOf("one", "never"), "app/role.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: mine}\n"})
		await(t, o, "it is refused", unapplied(meta.ReasonApplyRefused, "ClusterRole/mine", "system:serviceaccount:apply-a:"+deployer, "cannot patch"))
		tn.release(t, map[string]string{"app/one.yaml": configMapOf("one", "third")})
		await(t, o, "it is applied", applied("apply-a_one__ConfigMap"))
	})
	t.Run("no build", func(t *testing.T) {
		tn.release(t, map[string]string{"app/kustomization.yaml": "resources: [https://example.com/base.yaml]\n"})
		await(t, o, "it is refused", unapplied(meta.ReasonBuildFailed, "https://example.com/base.yaml"))
		tn.release(t, map[string]string{"app/one.yaml": configMapOf("one", "fourth")})
		await(t, one, "it is applied", valueOf("fourth"))
	})
	t.Run("compared by a user", func(t *testing.T) {
		plain := tn.kustomization("plain")
		plain.Spec.Path, plain.Spec.NamePrefix = "./app", "plain-"
		create(t, plain)
		compareTenant(t, tn, "fourth")
		must(t, "delete the Kustomization", objects.Delete(t.Context(), plain))
	})
	t.Run("another tenant", func(t *testing.T) {
		foreign := other.kustomization("foreign")
		foreign.Spec.TargetNamespace = "apply-a"
		create(t, foreign)
		await(t, foreign, "it is refused", unapplied(meta.ReasonApplyRefused, `namespace "apply-a"`, "system:serviceaccount:apply-b:"+deployer))
		missing := other.kustomization("missing")
		missing.Spec.ServiceAccountName = "missing"
		create(t, missing)
		await(t, missing, "it is refused", unapplied("SubjectNotFound", "missing"))
		nobody := other.kustomization("nobody")
		nobody.Spec.ServiceAccountName = ""
		create(t, nobody)
		await(t, nobody, "it is refused", unapplied(meta.ReasonInvalidSpec, "spec.serviceAccountName"))
		unbound := other.kustomization("unsourced")
		unbound.Spec.SourceRef.Name = "missing"
		create(t, unbound)
		await(t, unbound, "it waits", unapplied(meta.ReasonSourceNotReady, "OCIRepository missing"))
		if one.Data["key"] != "fourth" {
			t.Errorf("the object of the other tenant is %v", one.Data)
		}
	})
	t.Run("dependencies", func(t *testing.T) {
		after, base := other.kustomization("after"), other.kustomization("base")
		after.Spec.DependsOn, after.Spec.NamePrefix = []v1alpha1.KustomizationDependency{{LocalReference: meta.LocalReference{Name: "base"}}}, "after-"
		create(t, after)
		await(t, after, "it waits", unapplied(meta.ReasonDependencyNotReady, "Kustomization base does not exist"))
		create(t, base)
		await(t, base, "it is applied", applied("apply-b_one__ConfigMap"))
		await(t, after, "it is applied", applied("apply-b_after-one__ConfigMap"))
		twice := other.kustomization("twice")
		create(t, twice)
		await(t, twice, "it is refused", unapplied(meta.ReasonApplyRefused, "belongs to Kustomization apply-b/base"))
	})
	t.Run("deleted", func(t *testing.T) {
		must(t, "delete the Kustomization", objects.Delete(t.Context(), o))
		eventually(t, "its objects are gone", func(ctx context.Context) error {
			gone, rest := objects.Get(ctx, client.ObjectKeyFromObject(o), o), objects.Get(ctx, client.ObjectKeyFromObject(one), one)
			return wantf(apierrors.IsNotFound(gone) && apierrors.IsNotFound(rest), "%v, %v", gone, rest)
		})
	})
	t.Run("an account that is gone", func(t *testing.T) {
		tn.release(t, map[string]string{"one.yaml": configMapOf("one", "last")})
		orphaned := tn.kustomization("orphaned")
		create(t, orphaned)
		await(t, orphaned, "it is applied", applied("apply-a_one__ConfigMap"))
		must(t, "delete the account", objects.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: deployer}}))
		must(t, "delete the Kustomization", objects.Delete(t.Context(), orphaned))
		awaitLeftover(t, orphaned, "ConfigMap/apply-a/one")
	})
	judgeImpersonation(t)
}

// awaitLeftover waits until a Kustomization is gone, and an event names an object that stays.
func awaitLeftover(t *testing.T, o *v1alpha1.Kustomization, name string) {
	t.Helper()
	eventually(t, "the Kustomization is gone, and an event names what stays", func(ctx context.Context) error {
		gone := objects.Get(ctx, client.ObjectKeyFromObject(o), o)
		events, err := apiserver.EventsV1().Events(o.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == meta.ReasonContentStays && strings.Contains(e.Note, name) {
				return wantf(apierrors.IsNotFound(gone), "%v", gone)
			}
		}
		return fmt.Errorf("%d events, %w", len(events.Items), gone)
	})
}

// judgeImpersonation asserts that the apply controller wrote objects of tenants only as a tenant's
// account. As itself, it reads only the Secrets with kubeconfig files. The namespaces of the tenants
// begin with "apply-".
func judgeImpersonation(t *testing.T) {
	t.Helper()
	impersonated := 0
	for _, e := range auditLogOf(t, world) {
		if e.User.Username != "system:serviceaccount:"+local.Namespace+":"+applyController || e.ObjectRef == nil {
			continue
		}
		if e.ImpersonatedUser != nil {
			impersonated++
			if name := e.ImpersonatedUser.Username; !strings.HasPrefix(name, "system:serviceaccount:apply-") || !strings.HasSuffix(name, ":"+deployer) && !strings.HasSuffix(name, ":"+variableReader) {
				t.Errorf("acts as %s: %s %s", e.ImpersonatedUser.Username, e.Verb, e.RequestURI)
			}
			continue
		}
		if e.Verb == "get" && e.ObjectRef.Resource == "secrets" && (strings.HasPrefix(e.ObjectRef.Name, kubeConfigName) || e.ObjectRef.Name == ownKeys) {
			continue
		}
		if e.ObjectRef.Resource == "configmaps" || e.ObjectRef.Resource == "clusterroles" || e.ObjectRef.Resource == "secrets" {
			t.Errorf("acts as itself: %s %s", e.Verb, e.RequestURI)
		}
	}
	if impersonated == 0 {
		t.Error("no request as a tenant: the log is not read right")
	}
}
