package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/auth/internal/lease"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		for left, want := range map[time.Duration]time.Duration{time.Hour: time.Minute, time.Minute: time.Minute, time.Second: time.Second, -time.Hour: -time.Hour} {
			if got := lease.Until(now.Add(left)); got.Sub(now) != want || got.Location() != time.UTC {
				t.Errorf("a token with %s left is to be asked for again in %s, want %s", left, got.Sub(now), want)
			}
		}
	})
}
