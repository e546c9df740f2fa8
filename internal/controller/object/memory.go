package object

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// Remember is a ByObject.Transform for a manager's cache. It removes metadata that the cache does
// not need, and whose size no schema limits: labels, owners, managed fields and annotations. Only
// annotations with requests to the controller stay. The controller's patches contain only
// differences, so the object itself keeps all its metadata.
func Remember(object any) (any, error) {
	o, ok := object.(client.Object)
	if !ok {
		return object, nil // a tombstone: the watch missed the object's deletion
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
