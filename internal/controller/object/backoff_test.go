package object

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

func TestRepeatedFailuresBackOff(t *testing.T) {
	var f failures
	app := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	var got []time.Duration
	for range 9 {
		got = append(got, f.next(app, lastPause))
	}
	if got[0] != time.Second || got[1] != 2*time.Second || got[6] != 64*time.Second || got[7] != 2*time.Minute || got[8] != 2*time.Minute {
		t.Errorf("pauses %v", got)
	}
	if short, long := f.next(app, 5*time.Second), f.next(app, time.Hour); short != 5*time.Second || long != 1024*time.Second {
		t.Errorf("pauses with bounds of their own: %s and %s", short, long)
	}
	for range 100 {
		if pause := f.next(app, time.Hour); pause <= 0 || pause > time.Hour {
			t.Fatalf("a pause of %s", pause)
		}
	}
	f.reset(app)
	if first := f.next(app, lastPause); first != time.Second {
		t.Errorf("after a success: %s", first)
	}
}

// TestErrorPauses checks the first and the longest pause after errors that no condition shows.
func TestErrorPauses(t *testing.T) {
	pauses, object := errorPauses(), reconcile.Request{}
	if first := pauses.When(object); first != firstPause {
		t.Errorf("the first pause is %s", first)
	}
	for range 30 {
		pauses.When(object)
	}
	if longest := pauses.When(object); longest != lastPause {
		t.Errorf("the longest pause is %s", longest)
	}
}

// TestAPauseIsKept checks that a pause that the server asks for is not cut short.
func TestAPauseIsKept(t *testing.T) {
	var r Reconciler[*v1alpha1.OCIRepository, string]
	for range 100 {
		if got := r.pause(&turn[*v1alpha1.OCIRepository, string]{}, Failure{RetryAfter: time.Hour}); got != time.Hour {
			t.Fatalf("again after %s, asked for was an hour", got)
		}
	}
}
