package desired_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/desired"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestVariables checks the order of the values, which values are secret, and what may be missing.
func TestVariables(t *testing.T) {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "team-a", Name: name} }
	scheme := runtime.NewScheme()
	must.Succeed(t, corev1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.ConfigMap{ObjectMeta: named("plain"), Data: map[string]string{"a": "1", "b": "1"}},
		&corev1.Secret{ObjectMeta: named("secret"), Data: map[string][]byte{"b": []byte("2"), "c": []byte("2")}}).Build()
	o := &v1alpha1.Kustomization{ObjectMeta: named("app")}
	ref := func(kind, name string, optional bool) v1alpha1.SubstituteReference {
		return v1alpha1.SubstituteReference{Kind: kind, Name: name, Optional: optional}
	}
	o.Spec.PostBuild = &v1alpha1.PostBuild{
		Substitute:     map[string]string{"c": "3"},
		SubstituteFrom: []v1alpha1.SubstituteReference{ref("ConfigMap", "plain", false), ref("Secret", "secret", false), ref("Secret", "missing", true)},
	}
	v, err := desired.ReadVariables(t.Context(), c, o)
	must.Succeed(t, err)
	if want := map[string]string{"a": "1", "b": "2", "c": "3"}; !reflect.DeepEqual(v.Values, want) || !v.Secret || !v.Read {
		t.Errorf("%+v", v)
	}
	for kind, says := range map[string]string{"Secret": "create it, or set optional", "ConfigMap": "create it, or set optional", "Pod": "neither ConfigMap nor Secret"} {
		o.Spec.PostBuild.SubstituteFrom = []v1alpha1.SubstituteReference{ref(kind, "missing", false)}
		_, err := desired.ReadVariables(t.Context(), c, o)
		if err == nil || !strings.Contains(err.Error(), "spec.postBuild.substituteFrom[0]") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
