package object

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// progressAfter is how long a new generation is worked on before its status says so. Most work
// takes less, and then costs one write instead of two. Until then kstatus sees from
// observedGeneration that the object is in progress.
const progressAfter = time.Second

// showProgress has the status of a new generation say that work is under way, once that has taken
// progressAfter. The caller calls ended when the work is done; until then it writes nothing itself,
// and the kind may change t.o.
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
			log.FromContext(ctx).Info("progress was not written", "cause", err.Error()) // nor will the result be, if that was a conflict
			return
		}
		*t.before.GetStatus() = *shown.GetStatus()
		t.before.SetResourceVersion(shown.GetResourceVersion())
		t.o.SetResourceVersion(shown.GetResourceVersion())
	}
}
