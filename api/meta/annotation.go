package meta

const (
	// ReconcileRequestedAnnotation asks for a reconciliation now. Its value is
	// any string that differs from the last one, by custom the time of the
	// request in RFC 3339; status.lastHandledReconcileAt repeats it once it
	// was honoured. An exchange that failed is then tried again too, but not
	// within two seconds of the failure, and not while the other side has asked
	// to be left alone (Retry-After).
	ReconcileRequestedAnnotation = "lanyard.dev/reconcile-requested-at"

	// Finalizer holds an object of a kind that has artifacts until the
	// controller has removed these from the store.
	Finalizer = "lanyard.dev/finalizer"
)
