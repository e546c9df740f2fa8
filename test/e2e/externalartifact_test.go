package e2e

import (
	"context"
	"errors"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// fluxDefinition is the path of Flux's own CRD.
const fluxDefinition = "../../internal/controller/externalartifact/testdata/source.toolkit.fluxcd.io_externalartifacts.yaml"

// TestExternalArtifact publishes artifacts as objects of Flux's kind ExternalArtifact. At first,
// the cluster does not have this kind.
func TestExternalArtifact(t *testing.T) {
	beside(t)
	tn := newTenant(t, "external")
	first := tn.pushFile(t, "1.0.0", "first")
	o := tn.object("app")
	o.Spec.ExternalArtifact = true
	create(t, o)
	t.Run("without Flux", func(t *testing.T) {
		await(t, o, "what is missing", failing(meta.ReasonExternalArtifactUnavailable, "externalartifacts.source.toolkit.fluxcd.io", "install Flux"))
		if o.Status.Artifact == nil {
			t.Fatal("the artifact is not kept meanwhile")
		}
		wantServed(t, o)
	})
	t.Run("once Flux is there", func(t *testing.T) {
		installFlux(t)
		await(t, o, "the artifact", revision(first))
		wantOffered(t, o)
		o := externalArtifact(o)
		must(t, "read the ExternalArtifact", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if owner := metav1.GetControllerOf(o); owner == nil || owner.Kind != v1alpha1.OCIRepositoryKind || owner.Name != "app" {
			t.Errorf("its controller is %+v", owner)
		}
	})
	t.Run("a new revision", func(t *testing.T) {
		second := tn.pushFile(t, "1.0.0", "second")
		await(t, o, "the artifact", revision(second))
		wantOffered(t, o)
	})
	t.Run("corrected", func(t *testing.T) {
		elsewhere := client.RawPatch(types.MergePatchType, []byte(`{"status":{"artifact":{"url":"http://elsewhere.example.com/x.tar.gz"}}}`))
		must(t, "change its status", objects.Status().Patch(t.Context(), externalArtifact(o), elsewhere))
		misdirect(t, o)
		wantOffered(t, o)
	})
	t.Run("another's", func(t *testing.T) {
		theirs := tn.object("theirs")
		theirs.Spec.ExternalArtifact = true
		external := externalArtifact(theirs)
		external.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "lanyard"})
		create(t, external)
		create(t, theirs)
		await(t, theirs, "the refusal", failing(meta.ReasonExternalArtifactRefused, "external/theirs exists and was not made for this object"))
		patch(t, theirs, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
		await(t, theirs, "the artifact", pulled)
		before := external.GetResourceVersion()
		must(t, "read the ExternalArtifact", objects.Get(t.Context(), client.ObjectKeyFromObject(external), external))
		if external.GetResourceVersion() != before {
			t.Errorf("it was changed: %v", external.Object)
		}
	})
	t.Run("a Bucket's", func(t *testing.T) {
		lend(t, googlePrincipal(tn.namespace, puller))
		access, v := googleToken(t, token(t, tn.namespace, puller, googlePool))
		if !v.granted() {
			t.Fatalf("Google's STS says: %s", v)
		}
		store := google{access}
		store.put(t, "external/app.yaml", "first")
		defer store.remove(t, "external/app.yaml")
		b := tn.bucket("files", v1alpha1.ProviderGCP, e2eBucket)
		b.Spec.Prefix, b.Spec.ExternalArtifact = "external/", true
		create(t, b)
		await(t, b, "the objects", holding(t, map[string]string{"external/app.yaml": "first"}))
		wantOffered(t, b)
		store.put(t, "external/app.yaml", "second")
		await(t, b, "the change", holding(t, map[string]string{"external/app.yaml": "second"}))
		wantOffered(t, b)
		// Objects of two kinds may have the same name. The object that came first keeps its
		// ExternalArtifact.
		namesake := tn.bucket(o.Name, v1alpha1.ProviderGCP, e2eBucket)
		namesake.Spec.Prefix, namesake.Spec.ExternalArtifact = "external/", true
		create(t, namesake)
		await(t, namesake, "the refusal", unfetched(meta.ReasonExternalArtifactRefused, "external/app exists and was not made for this object"))
		wantOffered(t, o)
		patch(t, namesake, func(b *v1alpha1.Bucket) { b.Spec.ExternalArtifact = false })
		await(t, namesake, "the objects", fetched)
		patch(t, b, func(b *v1alpha1.Bucket) { b.Spec.ExternalArtifact = false })
		wantWithdrawn(t, b)
	})
	t.Run("switched off", func(t *testing.T) {
		patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
		wantWithdrawn(t, o)
		await(t, o, "no condition for it", func(o *v1alpha1.OCIRepository) error {
			c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionExternalArtifactPublished)
			return wantf(c == nil, "it is %+v", c)
		})
	})
}

// misdirect changes the source in an object's ExternalArtifact, as another user might do.
func misdirect(t *testing.T, o client.Object) {
	t.Helper()
	other := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"sourceRef":{"name":"other"}}}`))
	must(t, "change it", objects.Patch(t.Context(), externalArtifact(o), other))
}

// wantWithdrawn waits until the object's ExternalArtifact is deleted.
func wantWithdrawn(t *testing.T, o client.Object) {
	t.Helper()
	eventually(t, "the ExternalArtifact goes", func(ctx context.Context) error {
		err := objects.Get(ctx, client.ObjectKeyFromObject(o), externalArtifact(o))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, wantf(false, "it is there"))
	})
}

// installFlux installs Flux's CRD unless it exists, and waits until the API server serves the kind.
func installFlux(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(fluxDefinition)
	must(t, "read Flux's definition", err)
	definition := &unstructured.Unstructured{}
	must(t, "read Flux's definition", yaml.Unmarshal(data, &definition.Object))
	if err := objects.Create(t.Context(), definition); !apierrors.IsAlreadyExists(err) {
		must(t, "install Flux's definition", err)
	}
	kind := &unstructured.UnstructuredList{}
	kind.SetGroupVersionKind(fluxKind())
	eventually(t, "the kind is served", func(ctx context.Context) error { return objects.List(ctx, kind) })
}

func fluxKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "ExternalArtifact"}
}

// externalArtifact returns an empty ExternalArtifact with the object's namespace and name.
func externalArtifact(o client.Object) *unstructured.Unstructured {
	external := &unstructured.Unstructured{}
	external.SetGroupVersionKind(fluxKind())
	external.SetNamespace(o.GetNamespace())
	external.SetName(o.GetName())
	return external
}

// wantOffered waits until the ExternalArtifact has the object's artifact. The artifact must be
// served.
func wantOffered(t *testing.T, o client.Object) {
	t.Helper()
	var offered v1alpha1.Artifact
	eventually(t, "the ExternalArtifact offers the artifact", func(ctx context.Context) error {
		external := externalArtifact(o)
		err := errors.Join(objects.Get(ctx, client.ObjectKeyFromObject(o), o), objects.Get(ctx, client.ObjectKeyFromObject(o), external))
		if err != nil {
			return err
		}
		artifact, _, err := unstructured.NestedMap(external.Object, "status", "artifact")
		if err != nil {
			return err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(artifact, &offered); err != nil {
			return err
		}
		ref, _, _ := unstructured.NestedStringMap(external.Object, "spec", "sourceRef")
		kind, want := source(t, o)
		return wantf(want != nil && offered.URL == want.URL && offered.Digest == want.Digest && offered.Revision == want.Revision && offered.Size == want.Size &&
			ref["apiVersion"] == v1alpha1.GroupVersion().String() && ref["kind"] == kind && ref["name"] == o.GetName(),
			"it offers %+v of %v, the %s %+v", offered, ref, kind, want)
	})
	must(t, "fetch what is offered", fetch(t.Context(), &offered, offered.URL))
}

// source returns an object's kind and artifact.
func source(t *testing.T, o client.Object) (kind string, artifact *v1alpha1.Artifact) {
	t.Helper()
	keeper, ok := o.(kinds.Keeper)
	if !ok {
		t.Fatalf("a %T has no artifact", o)
	}
	of, _ := kinds.All().Of(keeper)
	return of.Kind, keeper.GetArtifactStatus().Artifact
}
