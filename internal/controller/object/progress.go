package object

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// progressAfter is the time after which the status of a new generation says that work is in
// progress. Most work takes less time, and needs only one status write. Until then,
// observedGeneration tells kstatus that the object is in progress.
const progressAfter = time.Second

// showProgress starts a timer for the work on a new generation. If the work takes longer than
// progressAfter, the timer writes to the status that the work is in progress. When the work is
// done, the caller must call ended(). Before that call, the caller must not write the object. While
// the work runs, the kind's Act may change t.o. So the timer writes a copy of t.before.
func (r *Reconciler[O, P]) showProgress(ctx context.Context, t *turn[O, P]) (ended func()) {
	if !t.isNew {
		return func() {}
	}
	shown, written := clone(t.before), make(chan error, 1)
	markProgressing(shown)
	timer := time.AfterFunc(progressAfter, func() { written <- r.patchStatus(ctx, t.before, shown) })
	return func() {
		if timer.Stop() {
			return
		}
		if err := <-written; err != nil {
			// Only log the error. After a conflict, the write of the result fails too, and the
			// object is reconciled again.
			log.FromContext(ctx).Info("progress was not written", "cause", err.Error())
			return
		}
		*t.before.GetStatus() = *shown.GetStatus()
		t.before.SetResourceVersion(shown.GetResourceVersion())
		t.o.SetResourceVersion(shown.GetResourceVersion())
	}
}
