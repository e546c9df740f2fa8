package source

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

func burdened(o *v1alpha1.OCIRepository) {
	o.Annotations = map[string]string{
		meta.ReconcileRequestedAnnotation: "now", "note": strings.Repeat("x", 200<<10), "kubectl.kubernetes.io/last-applied-configuration": "{}",
	}
	o.Labels = map[string]string{"team": "a"}
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "y"}}
}

func TestRememberKeepsTheRequest(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", burdened)
	o.Finalizers = []string{meta.Finalizer}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	want := o.DeepCopy()
	want.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: "now"}
	want.Labels, want.OwnerReferences, want.ManagedFields = nil, nil, nil
	got, err := Remember(o)
	if err != nil {
		t.Fatal(err)
	}
	if remembered := got.(*v1alpha1.OCIRepository); !reflect.DeepEqual(remembered, want) {
		t.Errorf("%v, want %v", remembered, want)
	}

	o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: strings.Repeat("x", 200<<10)}
	if _, err := Remember(o); err != nil || len(o.Annotations[meta.ReconcileRequestedAnnotation]) > 256 {
		t.Errorf("%d bytes of a request, %v", len(o.Annotations[meta.ReconcileRequestedAnnotation]), err)
	}
	o.Annotations = map[string]string{"note": "x"}
	if _, err := Remember(o); err != nil || o.Annotations != nil {
		t.Errorf("%v, %v", o.Annotations, err)
	}
	if got, err := Remember("tombstone"); err != nil || got != "tombstone" {
		t.Errorf("%v, %v", got, err)
	}
}

// What is not remembered is not taken from the object, from the finalizer that is added to the one that is removed.
func TestNothingIsLostThatIsNotRemembered(t *testing.T) {
	w := newWorld(t)
	w.shared.Client = interceptor.NewClient(w.kube, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			_, err := Remember(o)
			return err
		},
	})
	o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) {
		burdened(o)
		o.Finalizers = []string{"example.com/other"}
	})
	check := func(finalizers ...string) {
		t.Helper()
		got := w.get(o)
		if !maps.Equal(got.Annotations, o.Annotations) || !maps.Equal(got.Labels, o.Labels) || len(got.OwnerReferences) != 1 ||
			!slices.Equal(got.Finalizers, finalizers) || got.Status.LastHandledReconcileAt != "now" {
			t.Errorf("%d annotations, labels %v, owners %v, finalizers %v, handled %q",
				len(got.Annotations), got.Labels, got.OwnerReferences, got.Finalizers, got.Status.LastHandledReconcileAt)
		}
	}
	for range 2 { // with the finalizer to add, and without
		w.reconcile(o)
		check("example.com/other", meta.Finalizer)
	}
	if err := w.kube.Delete(t.Context(), w.get(o)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
		t.Fatal(err)
	}
	check("example.com/other")
}
