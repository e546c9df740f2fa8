package aws

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"
)

// TestBudgetOfAThrottledAccount checks the calls of 200 identities that ask every second. STS
// throttles their account for ten minutes. After the first calls, which run at the same time, only
// one call follows each pause. Another account never waits. When STS answers again, all identities
// are served within a minute.
func TestBudgetOfAThrottledAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		throttled, other := payer{"111122223333", "eu-west-1"}, payer{"222233334444", "eu-west-1"}
		ends := time.Now().Add(10 * time.Minute)
		answer := func() error {
			time.Sleep(50 * time.Millisecond)
			if time.Now().Before(ends) {
				return fmt.Errorf("AssumeRole: %w", &smithy.GenericAPIError{Code: "Throttling", Message: "Rate exceeded"})
			}
			return nil
		}
		var mu sync.Mutex
		calls, served := 0, map[int]time.Time{}
		var all sync.WaitGroup
		for identity := range 200 {
			all.Go(func() {
				for {
					leave, pause, err := b.enter(t.Context(), throttled)
					if err != nil {
						t.Error(err)
						return
					}
					if pause == 0 {
						err := answer()
						leave(err)
						mu.Lock()
						calls++
						if err == nil {
							served[identity] = time.Now()
							mu.Unlock()
							return
						}
						mu.Unlock()
					}
					time.Sleep(time.Second)
				}
			})
		}
		for range 500 {
			time.Sleep(time.Second)
			asked := time.Now()
			leave, pause, err := b.enter(t.Context(), other)
			if err != nil || pause > 0 || time.Since(asked) > 0 {
				t.Fatalf("the other account waits: %s, %v", pause, err)
			}
			leave(nil)
		}
		mu.Lock()
		// maxCalls calls were already in progress when the first throttled answer came. After them,
		// at most 20 calls may follow: one after each pause.
		if calls > maxCalls+20 {
			t.Errorf("%d calls in %s", calls, 500*time.Second)
		}
		mu.Unlock()
		all.Wait()
		for identity, at := range served {
			if at.After(ends.Add(lastPause + 5*time.Second)) {
				t.Errorf("identity %d waited %s longer than STS throttled", identity, at.Sub(ends))
			}
		}
		if len(b.known) > 0 {
			t.Errorf("%d budgets are kept for nobody", len(b.known))
		}
	})
}

// TestBudgetBoundsCallsUnderWay checks that the number of concurrent calls is limited, however many
// identities ask at once. A caller that gives up makes room for the next.
func TestBudgetBoundsCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		of := payer{"111122223333", "eu-west-1"}
		ctx, cancel := context.WithCancelCause(t.Context())
		var mu sync.Mutex
		under, most, gaveUp := 0, 0, 0
		var all sync.WaitGroup
		for i := range 10 * maxCalls {
			all.Go(func() {
				mine := t.Context()
				if i%2 == 1 {
					mine = ctx
				}
				leave, _, err := b.enter(mine, of)
				mu.Lock()
				if err != nil {
					gaveUp++
					mu.Unlock()
					return
				}
				under++
				most = max(most, under)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				under--
				mu.Unlock()
				leave(errors.New("connection refused"))
			})
		}
		synctest.Wait()
		cancel(errors.New("the caller is gone"))
		all.Wait()
		if most != maxCalls || gaveUp == 0 || len(b.known) > 0 {
			t.Errorf("%d calls at once, %d gave up, %d budgets are kept", most, gaveUp, len(b.known))
		}
	})
}

// TestBudgetOfNobody checks that calls are not limited if the account of their keys is unknown.
func TestBudgetOfNobody(t *testing.T) {
	var b budgets
	for range 2 * maxCalls {
		if _, pause, err := b.enter(t.Context(), payer{region: "eu-west-1"}); err != nil || pause > 0 {
			t.Fatal(pause, err)
		}
	}
}
