package object

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Remember reduces an object to what a manager's cache needs. It is a ByObject.Transform; see
// [memory.Kept]. Of the annotations, the cache has only those with requests to the controller. At
// the API server, the object keeps all metadata: the controller's patches contain only differences.
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

// refuse writes to the status that the object is too large. The cache has only a stub of the
// object, without a spec. The other phases of a reconciliation need the spec, so refuse runs
// instead of them.
func (r *Reconciler[O, P]) refuse(ctx context.Context, t *turn[O, P]) error {
	excess := memory.Refused(t.o)
	t.cause, t.refused = Invalid(excess.Field, excess.Fix(), "%w", excess), true
	t.o.GetStatus().LastHandledReconcileAt = requested(t.o)
	return r.failed(ctx, t)
}

// whole reads the whole object of a stub from the API server. The controller has no right to get
// objects, so whole sends a patch without changes. The answer to the patch contains the object.
func (r *Reconciler[O, P]) whole(ctx context.Context, stub O) (O, error) {
	o, _ := r.kind.Empty()
	o.SetNamespace(stub.GetNamespace())
	o.SetName(stub.GetName())
	err := r.shared.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{}`)))
	return o, err
}

// refusalChanged reports whether an update has changed what [memory.Refused] says about an object.
// The object's generation does not show this change. For example, an update of metadata can make
// the object too large, and the generation stays the same.
func refusalChanged(last, next client.Object) bool {
	before, after := memory.Refused(last), memory.Refused(next)
	return (before == nil) != (after == nil) || before != nil && *before != *after
}
