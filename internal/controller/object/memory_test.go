package object

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

func TestRememberKeepsTheRequests(t *testing.T) {
	o := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant-a", Name: "app", UID: "uid", Finalizers: []string{meta.Finalizer}, Labels: map[string]string{"team": "a"},
		Annotations:     map[string]string{meta.ReconcileRequestedAnnotation: "now", meta.OperationAnnotation: meta.OperationRenewToken, meta.AllowAccountChangeAnnotation: "123", "note": strings.Repeat("x", 200<<10)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "y"}},
	}}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	want := o.DeepCopy()
	want.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: "now", meta.OperationAnnotation: meta.OperationRenewToken, meta.AllowAccountChangeAnnotation: "123"}
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
	o.Annotations = map[string]string{"note": "x", meta.OperationAnnotation: strings.Repeat("x", 200<<10)}
	if _, err := Remember(o); err != nil || o.Annotations != nil {
		t.Errorf("%v, %v", o.Annotations, err)
	}
	if got, err := Remember("tombstone"); err != nil || got != "tombstone" {
		t.Errorf("%v, %v", got, err)
	}
}
