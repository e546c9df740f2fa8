package meta

const (
	// ReconcileRequestedAnnotation asks for a reconciliation now. Its value is any string that
	// differs from the last value; by custom it is the time of the request in RFC 3339. If the
	// controller failed to get a credential, it then tries again, but no sooner than two seconds
	// after the failure. After a temporary failure, it also waits as long as the server has asked
	// for (Retry-After). After the reconciliation, status.lastHandledReconcileAt has the same
	// value.
	ReconcileRequestedAnnotation = "lanyard.dev/reconcile-requested-at"

	// FluxReconcileRequestedAnnotation is Flux's name for [ReconcileRequestedAnnotation]. If an
	// object has both annotations, the later time counts. A value that is not a time counts
	// as the earliest time.
	FluxReconcileRequestedAnnotation = "reconcile.fluxcd.io/requestedAt"

	// OperationAnnotation asks the controller for an operation on the object. The controller
	// removes the annotation when the operation has succeeded. The only valid value is
	// OperationRenewToken. The controller ignores other values.
	OperationAnnotation = "lanyard.dev/operation"

	// OperationRenewToken makes the controller drop the tokens of the WorkloadIdentity that the
	// object names, and get new tokens. Requests for one WorkloadIdentity within ten seconds count
	// as one request.
	OperationRenewToken = "renew-workload-identity-token"

	// AllowAccountChangeAnnotation allows the credential of an object to change to another account
	// of its cloud. Its value is the new account, as the object's condition shows it. A change to
	// any other account stays refused.
	AllowAccountChangeAnnotation = "lanyard.dev/allow-account-change"

	// Finalizer keeps a deleted object until the controller has cleaned up. The controller removes
	// an object's artifacts from the artifact store, and a binding's data from the binding's
	// Secret. A deleted AWS identity stays until no object uses it.
	Finalizer = "lanyard.dev/finalizer"
)
