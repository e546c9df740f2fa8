package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"

	"github.com/lanyard-dev/lanyard/auth"
)

// TestBudgetOfAThrottledAccount checks the calls of 200 identities that ask every second. STS
// throttles their account for ten minutes. After the first calls, which run at the same time, only
// one call follows each pause. Another account never waits. When STS answers again, all identities
// are served within a minute.
func TestBudgetOfAThrottledAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		throttled, other := payer{account: "111122223333", region: "eu-west-1"}, payer{account: "222233334444", region: "eu-west-1"}
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
					leave, pause, err := b.enter(t.Context(), throttled, fmt.Sprint("tenant-", identity%3))
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
			leave, pause, err := b.enter(t.Context(), other, "")
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
		wantIdle(t, &b)
	})
}

// TestBudgetBoundsCallsUnderWay checks that the number of concurrent calls is limited, however many
// identities ask at once. A caller that gives up makes room for the next.
func TestBudgetBoundsCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		of := payer{account: "111122223333", region: "eu-west-1"}
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
				leave, _, err := b.enter(mine, of, fmt.Sprint("tenant-", i%maxCalls))
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
		if most != maxCalls || gaveUp == 0 {
			t.Errorf("%d calls at once, %d gave up", most, gaveUp)
		}
		wantIdle(t, &b)
	})
}

// TestBudgetOfNobody checks that calls are not limited if the account of their keys is unknown.
func TestBudgetOfNobody(t *testing.T) {
	var b budgets
	for range 2 * maxCalls {
		if _, pause, err := b.enter(t.Context(), payer{region: "eu-west-1"}, ""); err != nil || pause > 0 {
			t.Fatal(pause, err)
		}
	}
}

// wantIdle checks that no budget has a caller any more.
func wantIdle(t *testing.T, b *budgets) {
	t.Helper()
	for of, own := range b.known {
		if own.callers != 0 {
			t.Errorf("%v has %d callers", of, own.callers)
		}
	}
}

// TestBudgetIsShared checks that a tenant with many slow calls does not use all places of a budget.
// Each of ten other tenants gets a place at once. Then all places are in use, and a late tenant
// waits. It gets the first free place, although calls of the first tenant have waited longer.
func TestBudgetIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		of := payer{account: "111122223333", region: "eu-west-1"}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() {
				if leave, _, err := b.enter(ctx, of, "many"); err == nil {
					time.Sleep(10 * time.Second)
					leave(nil)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		for i := range maxCalls / 2 {
			leave, _, err := b.enter(t.Context(), of, fmt.Sprint("tenant-", i))
			if err != nil || time.Since(start) > 0 {
				t.Fatalf("tenant %d waited %s: %v", i, time.Since(start), err)
			}
			defer leave(nil)
		}
		leave, _, err := b.enter(t.Context(), of, "late")
		if err != nil || time.Since(start) != 10*time.Second {
			t.Fatalf("waited %s: %v", time.Since(start), err)
		}
		leave(nil)
		cancel()
		all.Wait()
	})
}

// TestBudgetWaitEndsInTime checks that a caller stops waiting for a place when the caller's context
// ends. The test also checks the caller's error. Several tenants share a lent subject, and may see
// the same error. So for a lent subject, the error must not name the caller's tenant.
func TestBudgetWaitEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		of := payer{account: "111122223333", region: "eu-west-1", tenant: "tenant-a"}
		for range maxCalls / 2 {
			leave, _, err := b.enter(t.Context(), of, "tenant-a")
			if err != nil {
				t.Fatal(err)
			}
			defer leave(nil)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, _, err := b.enter(ctx, of, "tenant-a")
		if waited := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || waited != 3*time.Second {
			t.Errorf("%v after %s", err, waited)
		}
		var x plan
		subject, _ := auth.ServiceAccount("tenant-a", "app")
		lent := x.crowdedOut(err, payer{account: of.account}, auth.Controller())
		if auth.CodeOf(lent) != auth.CodeThrottled || !errors.Is(lent, context.DeadlineExceeded) || strings.Contains(lent.Error(), "tenant-a") {
			t.Error(lent)
		}
		err = x.crowdedOut(err, of, subject)
		if auth.CodeOf(err) != auth.CodeThrottled || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "over the proxy or STS endpoint of namespace tenant-a") || !strings.Contains(err.Error(), "uses 10 places") {
			t.Error(err)
		}
		gone, leaveAtOnce := context.WithCancel(t.Context())
		leaveAtOnce()
		_, _, err = b.enter(gone, of, "tenant-a")
		if err = x.crowdedOut(err, of, subject); !errors.Is(err, context.Canceled) || auth.CodeOf(err) != "" {
			t.Error(err)
		}
	})
}

// TestPauseEndsAllWaits checks what happens to waiting callers when AWS throttles a call. All
// waiting callers must return at once, and learn how long the pause lasts. They must not wait until
// the other calls in progress end.
func TestPauseEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		of := payer{account: "111122223333", region: "eu-west-1"}
		var leaves []func(error)
		for range maxCalls / 2 {
			leave, _, err := b.enter(t.Context(), of, "tenant-a")
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leave)
		}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if leave, pause, err := b.enter(t.Context(), of, "tenant-a"); leave != nil || pause != firstPause || err != nil {
					t.Errorf("%s, %v", pause, err)
				}
			})
		}
		synctest.Wait()
		leaves[0](&smithy.GenericAPIError{Code: "Throttling"})
		all.Wait()
		for _, leave := range leaves[1:] {
			leave(nil)
		}
		wantIdle(t, &b)
	})
}

// TestBudgetsAreBounded checks that idle budgets are removed. A tenant that uses many accounts,
// regions and namespaces can make many budgets.
func TestBudgetsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		busy := payer{account: "busy"}
		leaveBusy, _, _ := b.enter(t.Context(), busy, "a")
		throttled := payer{account: "throttled"}
		leave, _, _ := b.enter(t.Context(), throttled, "a")
		leave(&smithy.GenericAPIError{Code: "Throttling"})
		for i := range 10 * maxKnown {
			leave, _, err := b.enter(t.Context(), payer{account: fmt.Sprint(i)}, "a")
			if err != nil {
				t.Fatal(err)
			}
			leave(nil)
		}
		if len(b.known) > maxKnown || b.known[busy] == nil || b.known[throttled] == nil {
			t.Errorf("%d budgets are kept", len(b.known))
		}
		leaveBusy(nil)
	})
}

func BenchmarkBudget(b *testing.B) {
	var all budgets
	of := payer{account: "111122223333", region: "eu-west-1"}
	b.ReportAllocs()
	for b.Loop() {
		leave, _, err := all.enter(b.Context(), of, "tenant-a")
		if err != nil {
			b.Fatal(err)
		}
		leave(nil)
	}
}
