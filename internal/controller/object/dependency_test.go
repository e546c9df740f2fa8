package object

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

func TestPredicates(t *testing.T) {
	object := func(generation int64, request string) *v1alpha1.OCIRepository {
		o := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		if request != "" {
			o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: request}
		}
		return o
	}
	flux := func(request string) *v1alpha1.OCIRepository {
		o := object(1, "")
		o.Annotations = map[string]string{meta.FluxReconcileRequestedAnnotation: request}
		return o
	}
	renew := func(operation string) *v1alpha1.OCIRepository {
		o := object(1, "")
		o.Annotations = map[string]string{meta.OperationAnnotation: operation}
		return o
	}
	allow := func(account string) *v1alpha1.OCIRepository {
		o := object(1, "")
		o.Annotations = map[string]string{meta.AllowAccountChangeAnnotation: account}
		return o
	}
	changed := predicate.Or(predicate.Predicate(predicate.GenerationChangedPredicate{}), requestChanged())
	for name, c := range map[string]struct {
		before, after *v1alpha1.OCIRepository
		want          bool
	}{
		"status only":       {object(1, ""), object(1, ""), false},
		"generation":        {object(1, ""), object(2, ""), true},
		"request":           {object(1, ""), object(1, "a"), true},
		"another request":   {object(1, "a"), object(1, "b"), true},
		"Flux's request":    {object(1, ""), flux("a"), true},
		"Flux's as before":  {flux("a"), flux("a"), false},
		"same request":      {object(1, "a"), object(1, "a"), false},
		"renewal":           {object(1, ""), renew(meta.OperationRenewToken), true},
		"same renewal":      {renew(meta.OperationRenewToken), renew(meta.OperationRenewToken), false},
		"renewed":           {renew(meta.OperationRenewToken), object(1, ""), false},
		"another operation": {object(1, ""), renew("reboot"), false},
		"request withdrawn": {object(1, "a"), object(1, ""), false},
		"an account":        {object(1, ""), allow("123"), true},
		"the same account":  {allow("123"), allow("123"), false},
		"another account":   {allow("123"), allow("456"), true},
		"account withdrawn": {allow("123"), object(1, ""), false},
	} {
		if got := changed.Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if !changed.Create(event.CreateEvent{Object: object(1, "")}) {
		t.Error("a new object is not seen")
	}
	account := &corev1.ServiceAccount{}
	only := createdOnly()
	if !only.Create(event.CreateEvent{Object: account}) || only.Update(event.UpdateEvent{ObjectOld: account, ObjectNew: account}) || only.Delete(event.DeleteEvent{Object: account}) {
		t.Error("accounts are seen other than when they are made")
	}
}
