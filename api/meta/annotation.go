package meta

const (
	// ReconcileRequestedAnnotation asks for a reconciliation now. Its value is any string that
	// differs from the last value; by custom it is the time of the request in RFC 3339. After the
	// reconciliation, status.lastHandledReconcileAt has the same value. The controller then also
	// repeats an exchange that failed, but not within two seconds of the failure. It also waits
	// as long as the other side has asked for (Retry-After).
	ReconcileRequestedAnnotation = "lanyard.dev/reconcile-requested-at"

	// FluxReconcileRequestedAnnotation is Flux's name of the same request. If an object has both,
	// the later time counts; a value that is not a time loses.
	FluxReconcileRequestedAnnotation = "reconcile.fluxcd.io/requestedAt"

	// OperationAnnotation asks the controller for an operation on the object. The controller removes
	// the annotation when the operation has succeeded. Its only value is OperationRenewToken; others
	// are left alone.
	OperationAnnotation = "lanyard.dev/operation"

	// OperationRenewToken has the controller drop the tokens of the WorkloadIdentity that the object
	// names, and get new ones. Requests for one WorkloadIdentity within ten seconds are one request.
	OperationRenewToken = "renew-workload-identity-token"

	// AllowAccountChangeAnnotation allows an object to get the credential of another account of its
	// cloud than before. Its value names that account, as the object's condition does, so that it
	// allows no further change.
	AllowAccountChangeAnnotation = "lanyard.dev/allow-account-change"

	// Finalizer keeps an object of a kind with artifacts until the controller has removed the
	// artifacts from the store.
	Finalizer = "lanyard.dev/finalizer"
)
