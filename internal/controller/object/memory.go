package object

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// Remember strips an object to what a manager's cache needs to keep, for ByObject.Transform. It
// removes the metadata whose size no schema limits: annotations (up to 256 KiB, except the requests
// to the controller), labels, owners and managed fields. Patches are differences, so what is
// missing in memory is not removed from the object.
func Remember(object any) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil // the end of an object that the watch has missed
	}
	requests := map[string]string{}
	if asked := requested(o); asked != "" {
		requests[meta.ReconcileRequestedAnnotation] = asked
	}
	if RenewalRequested(o) {
		requests[meta.OperationAnnotation] = meta.OperationRenewToken
	}
	if account := AllowedAccount(o); account != "" {
		requests[meta.AllowAccountChangeAnnotation] = account
	}
	if len(requests) == 0 {
		requests = nil
	}
	o.SetAnnotations(requests)
	o.SetLabels(nil)
	o.SetOwnerReferences(nil)
	o.SetManagedFields(nil)
	return o, nil
}
