package e2e

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// TestKustomizationExternalArtifact applies the artifacts of Flux's ExternalArtifacts, and refuses
// ExternalArtifacts that name the artifacts of others.
func TestKustomizationExternalArtifact(t *testing.T) {
	alone(t, "it installs Flux's kind, and the chart grants more for the apply controller")
	installFlux(t)
	t.Cleanup(func() { uninstallFlux(t) })
	tn := newApplyTenant(t, "apply-external", map[string]string{"one.yaml": configMapOf("one", "first")})
	other := newApplyTenant(t, "apply-publisher", map[string]string{"one.yaml": configMapOf("one", "foreign")})
	patch(t, tn.source, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	wantOffered(t, tn.source)
	await(t, other.source, "the artifact", pulled)
	startApplying(t, map[string]any{"externalArtifacts": true}, tn, other)
	from := func(name, source string) *v1alpha1.Kustomization {
		o := tn.kustomization(name)
		o.Spec.SourceRef = v1alpha1.SourceReference{Kind: v1alpha1.ExternalArtifactKind, Name: source}
		return o
	}
	o := from("app", "app")
	o.Spec.Interval.Duration = time.Hour // only the source wakes the object
	create(t, o)
	await(t, o, "it is applied", applied("apply-external_one__ConfigMap"))
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: "one"}}
	await(t, one, "it is applied", valueOf("first"))
	tn.release(t, map[string]string{"one.yaml": configMapOf("one", "second")})
	await(t, one, "the new release is applied", valueOf("second"))

	missing := from("missing", "missing")
	create(t, missing)
	await(t, missing, "it waits", unapplied(meta.ReasonSourceNotReady, "ExternalArtifact missing does not exist"))
	elsewhere := *other.source.Status.Artifact.DeepCopy()
	elsewhere.URL = "http://elsewhere.example.com/externalartifact/apply-external/elsewhere/x.tar.gz"
	for name, c := range map[string]struct {
		artifact v1alpha1.Artifact
		says     string
	}{
		"foreign":   {*other.source.Status.Artifact, "the artifact of another object"},
		"elsewhere": {elsewhere, `"elsewhere.example.com" is no artifact server`},
	} {
		forged := forge(t, tn.namespace, name, &c.artifact)
		refused := from(forged.GetName(), forged.GetName())
		create(t, refused)
		await(t, refused, "it is refused", unapplied(meta.ReasonArtifactRefused, c.says))
	}
	judgeImpersonation(t)
}

// forge creates an ExternalArtifact of another publisher. It names the source of another namespace.
func forge(t *testing.T, namespace, name string, artifact *v1alpha1.Artifact) *unstructured.Unstructured {
	t.Helper()
	external := externalArtifact(&v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	must(t, "name a source", unstructured.SetNestedStringMap(external.Object, map[string]string{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.OCIRepositoryKind, "name": "app", "namespace": "apply-publisher",
	}, "spec", "sourceRef"))
	create(t, external)
	must(t, "name an artifact", unstructured.SetNestedMap(external.Object, map[string]any{
		"url": artifact.URL, "path": artifact.Path, "digest": artifact.Digest, "revision": artifact.Revision, "size": artifact.Size,
		"lastUpdateTime": artifact.LastUpdateTime.UTC().Format("2006-01-02T15:04:05Z"),
	}, "status", "artifact"))
	must(t, "write the status", objects.Status().Update(t.Context(), external))
	return external
}

// uninstallFlux removes Flux's CRD, and waits until the API server has the kind no longer.
func uninstallFlux(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("externalartifacts.source.toolkit.fluxcd.io")
	must(t, "remove Flux's definition", client.IgnoreNotFound(objects.Delete(ctx, definition)))
	err := objects.Get(ctx, client.ObjectKeyFromObject(definition), definition)
	for ; err == nil; err = objects.Get(ctx, client.ObjectKeyFromObject(definition), definition) {
		time.Sleep(pollEvery)
	}
	if !apierrors.IsNotFound(err) {
		t.Errorf("Flux's definition does not go: %v", err)
	}
}
