package source

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// Remember is what a manager's cache is to keep of a source, for ByObject.Transform: all but what people may attach to an object
// without the kind's schema to bound it (annotations, which may be 256 KiB, labels, owners and who wrote what), and of that the
// request to reconcile. Patches are differences, so what is not remembered is not removed.
func Remember(object any) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil // the end of an object that the watch has missed
	}
	asked := requested(o)
	o.SetAnnotations(nil)
	if asked != "" {
		o.SetAnnotations(map[string]string{meta.ReconcileRequestedAnnotation: asked})
	}
	o.SetLabels(nil)
	o.SetOwnerReferences(nil)
	o.SetManagedFields(nil)
	return o, nil
}
