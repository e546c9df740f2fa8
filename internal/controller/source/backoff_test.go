package source

import (
	"testing"
	"time"
)

func TestRepeatedFailuresBackOff(t *testing.T) {
	var f failures
	var got []time.Duration
	for range 9 {
		got = append(got, f.next("uid", 10*time.Minute))
	}
	if got[0] != time.Second || got[1] != 2*time.Second || got[6] != 64*time.Second || got[7] != 2*time.Minute || got[8] != 2*time.Minute {
		t.Errorf("pauses %v", got)
	}
	if again := f.next("uid", 30*time.Second); again != 30*time.Second {
		t.Errorf("with an interval of 30s: %s", again)
	}
	f.forget("uid")
	if first := f.next("uid", 10*time.Minute); first != time.Second {
		t.Errorf("after a success: %s", first)
	}
	if fast := f.next("other", time.Millisecond); fast != time.Second {
		t.Errorf("with an interval of 1ms: %s", fast)
	}
}
