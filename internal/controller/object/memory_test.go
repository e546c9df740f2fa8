package object

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/must"
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

// TestUpdatesOfLargeObjects checks that an object is reconciled when it becomes too large for the
// cache, and when somebody makes it smaller. Neither update changes the object's generation.
func TestUpdatesOfLargeObjects(t *testing.T) {
	remembered := func(labels, finalizers int) *v1alpha1.OCIRepository {
		o := &v1alpha1.OCIRepository{}
		for i := range labels {
			metav1.SetMetaDataLabel(&o.ObjectMeta, fmt.Sprint("key-", i), "")
		}
		for i := range finalizers {
			o.Finalizers = append(o.Finalizers, fmt.Sprint("example.com/", i))
		}
		_, err := Remember(o)
		must.Succeed(t, err)
		return o
	}
	for name, c := range map[string]struct {
		before, after *v1alpha1.OCIRepository
		want          bool
	}{
		"more labels":              {remembered(1, 0), remembered(2, 0), false},
		"too many labels":          {remembered(1, 0), remembered(1000, 0), true},
		"labels removed":           {remembered(1000, 0), remembered(1, 0), true},
		"too many, and unchanged":  {remembered(1000, 0), remembered(1000, 0), false},
		"still too many labels":    {remembered(1000, 0), remembered(999, 0), true},
		"now too many finalizers":  {remembered(1000, 1000), remembered(0, 1000), true},
		"labels beside finalizers": {remembered(0, 1000), remembered(1, 1000), false},
	} {
		if got := requestChanged().Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.want {
			t.Errorf("%s: reconciled %v, want %v", name, got, c.want)
		}
	}
}
