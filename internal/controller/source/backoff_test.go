package source

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestRepeatedFailuresBackOff(t *testing.T) {
	var f failures
	app := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	var got []time.Duration
	for range 9 {
		got = append(got, f.next(app, 10*time.Minute))
	}
	if got[0] != time.Second || got[1] != 2*time.Second || got[6] != 64*time.Second || got[7] != 2*time.Minute || got[8] != 2*time.Minute {
		t.Errorf("pauses %v", got)
	}
	if again := f.next(app, 30*time.Second); again != 30*time.Second {
		t.Errorf("with an interval of 30s: %s", again)
	}
	f.forget(app)
	if first := f.next(app, 10*time.Minute); first != time.Second {
		t.Errorf("after a success: %s", first)
	}
	if fast := f.next(client.ObjectKey{Namespace: "tenant-b", Name: "app"}, time.Millisecond); fast != time.Second {
		t.Errorf("with an interval of 1ms: %s", fast)
	}
}
