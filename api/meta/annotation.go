package meta

const (
	// ReconcileRequestedAnnotation asks for a reconciliation now. Its value is any string that
	// differs from the last value; by custom it is the time of the request in RFC 3339. On such a
	// request, the controller also repeats an exchange that failed, but not within two seconds of
	// the failure, and not before the end of a pause that the server has asked for (Retry-After).
	// After the reconciliation, status.lastHandledReconcileAt has the same value.
	ReconcileRequestedAnnotation = "lanyard.dev/reconcile-requested-at"

	// FluxReconcileRequestedAnnotation is Flux's name for the same annotation. If an object has
	// both annotations, the later time counts. A value that is a time wins over any other value.
	FluxReconcileRequestedAnnotation = "reconcile.fluxcd.io/requestedAt"

	// OperationAnnotation asks the controller for an operation on the object. The controller
	// removes the annotation when the operation has succeeded. The only valid value is
	// OperationRenewToken. The controller ignores other values.
	OperationAnnotation = "lanyard.dev/operation"

	// OperationRenewToken makes the controller drop the tokens of the WorkloadIdentity that the
	// object names, and get new tokens. Requests for one WorkloadIdentity within ten seconds count
	// as one request.
	OperationRenewToken = "renew-workload-identity-token"

	// AllowAccountChangeAnnotation allows an object to get a credential of another account of its
	// cloud than before. Its value is the new account, as the object's condition shows it. So the
	// annotation does not allow a further change to a third account.
	AllowAccountChangeAnnotation = "lanyard.dev/allow-account-change"

	// Finalizer keeps an object until the controller has removed the object's artifacts from the
	// artifact store, or a binding's data from the Secret. It keeps an AWS identity while objects
	// use the identity.
	Finalizer = "lanyard.dev/finalizer"
)
