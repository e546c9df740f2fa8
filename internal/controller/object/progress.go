package object

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// progressAfter is the time after which the status of a new generation says that work is in
// progress. Most work takes less time, so it costs one write instead of two. Before that time,
// observedGeneration tells kstatus that the object is in progress.
const progressAfter = time.Second

// showProgress writes to the status that work on a new generation is in progress, if the work takes
// longer than progressAfter. The caller must call ended() when the work is done, and must not
// write the object before that call. The kind may change t.o meanwhile.
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
			// This error is only logged: after a conflict, the write of the work's result fails
			// too.
			log.FromContext(ctx).Info("progress was not written", "cause", err.Error())
			return
		}
		*t.before.GetStatus() = *shown.GetStatus()
		t.before.SetResourceVersion(shown.GetResourceVersion())
		t.o.SetResourceVersion(shown.GetResourceVersion())
	}
}
