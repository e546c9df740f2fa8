//go:build flux

package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// The owners of objects: the prefix of their labels, and the name of Flux's field manager.
const (
	lanyards = "kustomize.toolkit.lanyard.dev"
	fluxes   = "kustomize.toolkit.fluxcd.io"
	flux     = "kustomize-controller"
)

// TestMoveFromFlux moves a Kustomization from Flux's own kustomize-controller to Lanyard and back, as
// docs/kustomizations.md says. No object is deleted, and no field is left behind.
func TestMoveFromFlux(t *testing.T) {
	alone(t, "it installs Flux's kinds, and the chart grants more for the apply controller")
	installDefinitions(t, filepath.Join(fluxModule(t, "kustomize", "kustomize-controller"), "config/crd/bases"))
	installDefinitions(t, filepath.Join(fluxModule(t, "../../bench/controller/flux", "source-controller"), "config/crd/bases"))
	full := map[string]string{"one.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {key: first, extra: first}\n", "two.yaml": configMapOf("two", "two")}
	less := map[string]string{"one.yaml": configMapOf("one", "second")}
	tn := newApplyTenant(t, "apply-moved", full)
	patch(t, tn.source, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	wantOffered(t, tn.source)
	startApplying(t, nil, tn)
	startKustomize(t, "--feature-gates=ExternalArtifact=true", "--no-cross-namespace-refs=true", "--override-manager="+applyController)
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "one"}}
	two := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "two"}}
	held := func(o *corev1.ConfigMap, uid types.UID, manager, label string) {
		t.Helper()
		wantHeld(t, o, uid, manager, label)
	}

	theirs := kustomization(tn.namespace, "app", tn.namespace)
	deploy(t, theirs)
	awaitApplied(t, theirs, tn.source)
	must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(one), one))
	must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(two), two))
	first, second := one.UID, two.UID
	held(one, first, flux, fluxes)

	suspendAndDelete(t, theirs)
	ours := tn.kustomization("app")
	create(t, ours)
	await(t, ours, "it is applied", applied("apply-moved_one__ConfigMap", "apply-moved_two__ConfigMap"))
	held(one, first, applyController, lanyards)
	held(two, second, applyController, lanyards)
	tn.release(t, less)
	await(t, ours, "it is applied", applied("apply-moved_one__ConfigMap"))
	held(one, first, applyController, lanyards)
	if _, extra := one.Data["extra"]; extra || one.Data["key"] != "second" {
		t.Errorf("a field that Flux has written stays: %v", one.Data)
	}
	if err := objects.Get(t.Context(), client.ObjectKeyFromObject(two), two); !apierrors.IsNotFound(err) {
		t.Errorf("an object that Flux has created is not pruned: %v", err)
	}
	tn.release(t, full)
	await(t, ours, "it is applied", applied("apply-moved_one__ConfigMap", "apply-moved_two__ConfigMap"))

	t.Run("both at once", func(t *testing.T) {
		again := kustomization(tn.namespace, "app", tn.namespace)
		create(t, again)
		await(t, ours, "it is refused", unapplied(meta.ReasonApplyRefused, "Flux applies the object for its Kustomization apply-moved/app"))
		suspendAndDelete(t, again)
		patch(t, ours, func(o *v1alpha1.Kustomization) {
			o.SetAnnotations(map[string]string{meta.ReconcileRequestedAnnotation: "flux-is-gone"})
		})
		await(t, ours, "it is applied", applied("apply-moved_one__ConfigMap", "apply-moved_two__ConfigMap"))
		held(one, first, applyController, lanyards)
	})

	must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(two), two))
	second = two.UID
	suspendAndDelete(t, ours)
	back := kustomization(tn.namespace, "app", tn.namespace)
	deploy(t, back)
	awaitApplied(t, back, tn.source)
	held(one, first, flux, fluxes)
	held(two, second, flux, fluxes)
	judgeImpersonation(t)
}

// TestMoveOfRepository moves a Kustomization that another Kustomization of Flux applies from a
// repository, with the two commits that docs/kustomizations.md describes. Flux prunes the suspended
// Kustomization, and no object is deleted.
func TestMoveOfRepository(t *testing.T) {
	alone(t, "it installs Flux's kinds, and the chart grants more for the apply controller")
	installDefinitions(t, filepath.Join(fluxModule(t, "kustomize", "kustomize-controller"), "config/crd/bases"))
	installDefinitions(t, filepath.Join(fluxModule(t, "../../bench/controller/flux", "source-controller"), "config/crd/bases"))
	tn := newApplyTenant(t, "apply-repository", map[string]string{"one.yaml": configMapOf("one", "first")})
	patch(t, tn.source, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	wantOffered(t, tn.source)
	repository := tn.object("parent")
	repository.Spec.Interval.Duration, repository.Spec.Ref.Tag, repository.Spec.ExternalArtifact = time.Second, "2.0.0", true
	commit := func(manifest string) {
		t.Helper()
		tn.push(t, "2.0.0", layer(t, file("child.yaml", manifest)))
	}
	const theirs = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: child}\n" +
		"spec:\n  sourceRef: {kind: ExternalArtifact, name: app}\n  interval: 10m\n  prune: true\n  targetNamespace: apply-repository\n"
	const ours = "apiVersion: toolkit.lanyard.dev/v1alpha1\nkind: Kustomization\nmetadata: {name: child}\n" +
		"spec:\n  sourceRef: {kind: OCIRepository, name: app}\n  interval: 2s\n  prune: true\n  serviceAccountName: deployer\n  targetNamespace: apply-repository\n"
	commit(theirs)
	create(t, repository)
	startApplying(t, nil, tn)
	startKustomize(t, "--feature-gates=ExternalArtifact=true", "--no-cross-namespace-refs=true")
	parent := kustomization(tn.namespace, "parent", tn.namespace)
	deploy(t, parent)
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "one"}}
	eventually(t, "Flux applies the object", func(ctx context.Context) error { return objects.Get(ctx, client.ObjectKeyFromObject(one), one) })
	wantHeld(t, one, one.UID, flux, fluxes)

	child := kustomization(tn.namespace, "child", tn.namespace)
	commit(theirs + "  suspend: true\n")
	await(t, child, "it is suspended", func(o *unstructured.Unstructured) error {
		suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
		return wantf(suspended, "%v", o.Object["spec"])
	})
	commit(ours)
	moved := &v1alpha1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "child"}}
	await(t, moved, "it is applied", applied("apply-repository_one__ConfigMap"))
	eventually(t, "Flux's Kustomization goes", func(ctx context.Context) error {
		err := objects.Get(ctx, client.ObjectKeyFromObject(child), child)
		return wantf(apierrors.IsNotFound(err), "%v", err)
	})
	wantHeld(t, one, one.UID, applyController, lanyards)
}

// wantHeld asserts that an object is the same as before, and that only one program manages the object.
func wantHeld(t *testing.T, o *corev1.ConfigMap, uid types.UID, manager, label string) {
	t.Helper()
	must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	var managers, labels []string
	for _, m := range o.ManagedFields {
		managers = append(managers, m.Manager)
	}
	for name := range o.Labels {
		labels = append(labels, name)
	}
	slices.Sort(labels)
	if o.UID != uid || !slices.Equal(managers, []string{manager}) || !slices.Equal(labels, []string{label + "/name", label + "/namespace"}) {
		t.Errorf("%s is object %s, not %s, with managers %q and labels %q", o.Name, o.UID, uid, managers, labels)
	}
}

// suspendAndDelete deletes a Kustomization of Flux or of Lanyard. Its objects stay, because it is
// suspended.
func suspendAndDelete(t *testing.T, o client.Object) {
	t.Helper()
	suspend := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))
	must(t, "suspend a Kustomization", objects.Patch(t.Context(), o, suspend))
	must(t, "delete a Kustomization", objects.Delete(t.Context(), o))
	eventually(t, "the Kustomization goes", func(ctx context.Context) error {
		err := objects.Get(ctx, client.ObjectKeyFromObject(o), o)
		return wantf(apierrors.IsNotFound(err), "%v", err)
	})
}
