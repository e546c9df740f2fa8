package object

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// progressAfter is the time after which the status of a new generation says that work is in
// progress. Most work takes less time, so it costs one write instead of two. Before that time,
// kstatus sees from observedGeneration that the object is in progress.
const progressAfter = time.Second

// showProgress waits for progressAfter and then writes to the status of a new generation that work
// is in progress. The caller must call ended when the work is done, and must not write the object
// before that call. The kind may change t.o meanwhile.
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
			// After a conflict, the result of the work cannot be written either, so this error is
			// only logged.
			log.FromContext(ctx).Info("progress was not written", "cause", err.Error())
			return
		}
		*t.before.GetStatus() = *shown.GetStatus()
		t.before.SetResourceVersion(shown.GetResourceVersion())
		t.o.SetResourceVersion(shown.GetResourceVersion())
	}
}
