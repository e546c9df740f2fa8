package expiring_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/expiring"
)

// TestStore checks that a value is still there 59 minutes after it has expired. Later, Put must
// delete the value while it adds new ones.
func TestStore(t *testing.T) {
	var s expiring.Store[int]
	start := time.Unix(0, 0)
	if _, ok := s.Get("none"); ok {
		t.Error("an empty store knows a secret")
	}
	for i := range 3000 {
		now := start.Add(time.Duration(i) * time.Minute)
		s.Put(strconv.Itoa(i), i, now, now)
		if v, ok := s.Get(strconv.Itoa(i)); !ok || v != i {
			t.Fatalf("%d: %d %t", i, v, ok)
		}
		if _, ok := s.Get(strconv.Itoa(max(0, i-59))); !ok {
			t.Fatalf("%d: a value was forgotten within the hour", i)
		}
	}
	if _, ok := s.Get("0"); ok {
		t.Error("the oldest value is still known")
	}
}
