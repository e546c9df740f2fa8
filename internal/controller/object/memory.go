package object

import (
	"context"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Remember reduces an object to what the controllers read, before a manager's cache stores the
// object. It is a transform for cache.ByObject; see [memory.Kept.Remember]. Of the annotations,
// only requests to the controller stay. Remember does not affect the object at the API server,
// because the controller's patches contain only differences.
func Remember(object any) (any, error) {
	return memory.Kept{Finalizers: true, Annotations: requests}.Remember(object)
}

// requests returns the annotations of an object that contain requests to the controller.
func requests(o metav1.Object) map[string]string {
	found := map[string]string{}
	if asked := requested(o); asked != "" {
		found[meta.ReconcileRequestedAnnotation] = asked
	}
	if RenewalRequested(o) {
		found[meta.OperationAnnotation] = meta.OperationRenewToken
	}
	if account := AllowedAccount(o); account != "" {
		found[meta.AllowAccountChangeAnnotation] = account
	}
	return found
}

// refuse writes to the status that the object is too large for the cache. The cache has only a stub
// of the object, without a spec. The other phases of a reconciliation need the spec, so refuse runs
// instead of these phases.
func (r *Reconciler[O, P]) refuse(ctx context.Context, t *turn[O, P]) error {
	excess := memory.Refused(t.o)
	t.cause, t.refused = Invalid(excess.Field, excess.Fix(), "%w", excess), true
	t.o.GetStatus().LastHandledReconcileAt = requested(t.o)
	return r.failed(ctx, t)
}

// whole returns an object for which the cache has only a stub. If the object does not exist, found
// is false. The controllers may list the objects of every kind. But they may get the objects of
// some kinds only. So whole lists the objects with this name. A patch without changes would return
// the object too. But for a patch, the API server decodes and checks the object. For a large
// object, the check can take seconds.
func (r *Reconciler[O, P]) whole(ctx context.Context, stub O) (o O, found bool, err error) {
	_, list := r.kind.Empty()
	err = r.shared.Live.List(ctx, list, client.InNamespace(stub.GetNamespace()), client.MatchingFields{metav1.ObjectNameField: stub.GetName()})
	if err != nil {
		return o, false, err
	}
	err = apimeta.EachListItem(list, func(listed runtime.Object) error {
		o, found = listed.(O) // the list has only objects of type O
		return nil
	})
	return o, found, err
}

// refusalChanged reports whether an update makes an object too large for the cache, or small enough
// again. It also reports a change of the excess, which is the result of [memory.Refused]. The
// object's generation does not show such a change: labels, for example, can become too large, and
// the generation stays the same.
func refusalChanged(last, next client.Object) bool {
	before, after := memory.Refused(last), memory.Refused(next)
	return (before == nil) != (after == nil) || before != nil && *before != *after
}
