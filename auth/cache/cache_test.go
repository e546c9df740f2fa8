package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// badge is a token with a number, so that tests can distinguish tokens.
type badge struct {
	number int64
	ends   time.Time
}

func (b *badge) GetDuration() time.Duration { return time.Until(b.ends) }

// office issues badges and counts them.
type office struct {
	life   time.Duration
	takes  time.Duration
	err    error
	issued atomic.Int64
	calls  atomic.Int64
}

func (o *office) fetch(key auth.Key) func(context.Context) (auth.Fetched, error) {
	return func(ctx context.Context) (auth.Fetched, error) {
		o.calls.Add(1)
		life, takes, err := o.life, o.takes, o.err
		if takes > 0 {
			timer := time.NewTimer(takes)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return auth.Fetched{}, context.Cause(ctx)
			}
		}
		if err != nil {
			return auth.Fetched{}, err
		}
		return auth.Fetched{Key: key, Token: &badge{number: o.issued.Add(1), ends: time.Now().Add(life)}}, nil
	}
}

func keyOf(tb testing.TB, namespace, name string) auth.Key {
	tb.Helper()
	subject, err := auth.ServiceAccount(namespace, name)
	must.Succeed(tb, err)
	return auth.Key{Provider: "test", Subject: subject, UID: "uid-" + name, Identity: "role"}
}

// ask uses the cache as auth.GetToken does.
func ask(ctx context.Context, c *cache.Cache, key auth.Key, o *office, fo auth.FetchOptions) (int64, error) {
	token, ok := c.Get(key, fo.MinRemaining, fo.InvolvedObject)
	if !ok {
		if fo.Tenant == "" {
			fo.Tenant = key.Subject.Namespace()
		}
		fetched, err := c.Fetch(ctx, key, fo, o.fetch(key))
		if err != nil {
			return 0, err
		}
		token = fetched.Token
	}
	return token.(*badge).number, nil
}

func mustAsk(t *testing.T, c *cache.Cache, key auth.Key, o *office) int64 {
	t.Helper()
	n, err := ask(t.Context(), c, key, o, auth.FetchOptions{})
	must.Succeed(t, err)
	return n
}

func temporary(code auth.Code) error {
	return &auth.Error{Stage: auth.StageExchange, Code: code, Err: errors.New("down")}
}

func refused() error {
	return &auth.Error{Stage: auth.StageExchange, Code: auth.CodeTrustRefused, Err: errors.New("no")}
}

func TestOneExchangeServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{life: time.Hour, takes: 100 * time.Millisecond}
		key := keyOf(t, "a", "sa")
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if n := mustAsk(t, c, key, o); n != 1 {
					t.Errorf("token %d, want the first", n)
				}
			})
		}
		wg.Wait()
		if got := o.calls.Load(); got != 1 {
			t.Errorf("%d exchanges for 20 callers, want 1", got)
		}
	})
}

func TestHitNeverWaitsForAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		hot, cold := keyOf(t, "a", "hot"), keyOf(t, "a", "cold")
		fast, slow := &office{life: time.Hour}, &office{life: time.Hour, takes: 2 * time.Second}
		mustAsk(t, c, hot, fast)
		var wg sync.WaitGroup
		wg.Go(func() { mustAsk(t, c, cold, slow) })
		synctest.Wait()
		start := time.Now()
		mustAsk(t, c, hot, fast)
		if took := time.Since(start); took != 0 {
			t.Errorf("hit waited %s for another key's exchange", took)
		}
		wg.Wait()
	})
}

func TestCallersKeepTheirOwnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{life: time.Hour, takes: 2 * time.Second}
		key := keyOf(t, "a", "sa")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := ask(ctx, c, key, o, auth.FetchOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the caller's deadline", err)
		}
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("returned after %s, want 100ms", took)
		}
		// The exchange continued after the first caller's deadline, so this call gets its token.
		if n := mustAsk(t, c, key, o); n != 1 || o.calls.Load() != 1 {
			t.Errorf("token %d after %d exchanges, want the first of 1", n, o.calls.Load())
		}
	})
}

func TestExchangeHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10, ExchangeTimeout: 30 * time.Second})
		o := &office{life: time.Hour, takes: time.Hour}
		start := time.Now()
		_, err := ask(t.Context(), c, keyOf(t, "a", "sa"), o, auth.FetchOptions{})
		if auth.CodeOf(err) != auth.CodeUnreachable || !auth.IsTemporary(err) {
			t.Errorf("error %v, want %s", err, auth.CodeUnreachable)
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("returned after %s, want 30s", took)
		}
	})
}

func TestRefreshAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{life: time.Hour}
		key := keyOf(t, "a", "sa")
		mustAsk(t, c, key, o)
		time.Sleep(44 * time.Minute) // below 0.75 of the token's life, so that no refresh is due
		if n := mustAsk(t, c, key, o); n != 1 {
			t.Fatalf("token %d before its time, want 1", n)
		}
		// After 52 of 60 minutes, more than 0.85 of the token's life has passed, so the refresh is
		// due. More than the floor of five minutes is left, so callers do not wait for the refresh.
		time.Sleep(8 * time.Minute)
		o.takes = time.Second
		start := time.Now()
		if n := mustAsk(t, c, key, o); n != 1 || time.Since(start) != 0 {
			t.Errorf("token %d after %s, want the old one without waiting", n, time.Since(start))
		}
		time.Sleep(2 * time.Second)
		if n := mustAsk(t, c, key, o); n != 2 || o.calls.Load() != 2 {
			t.Errorf("token %d of %d, want the refreshed one", n, o.calls.Load())
		}
	})
}

func TestUnusedTokenIsNotRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		go c.Run(t.Context())
		o := &office{life: time.Hour}
		mustAsk(t, c, keyOf(t, "a", "sa"), o)
		time.Sleep(3 * time.Hour)
		if got := o.calls.Load(); got != 1 {
			t.Errorf("%d exchanges for a token that nobody uses", got)
		}
		if c.Len() != 0 {
			t.Error("the expired token is still kept")
		}
	})
}

func TestFloorWaitsForRefresh(t *testing.T) {
	for _, tt := range []struct {
		name         string
		life, age    time.Duration
		minRemaining time.Duration
		want         int64
	}{
		{"five minutes of an hour", time.Hour, 56 * time.Minute, 0, 2},
		{"a tenth of ten minutes", 10 * time.Minute, 9*time.Minute + time.Second, 0, 2},
		{"above the floor", 10 * time.Minute, 7 * time.Minute, 0, 1},
		{"the caller needs more", time.Hour, 20 * time.Minute, 41 * time.Minute, 2},
		{"the caller needs less", time.Hour, 20 * time.Minute, 39 * time.Minute, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cache.New(cache.Options{MaxSize: 10})
				o := &office{life: tt.life}
				key := keyOf(t, "a", "sa")
				mustAsk(t, c, key, o)
				time.Sleep(tt.age)
				n, err := ask(t.Context(), c, key, o, auth.FetchOptions{MinRemaining: tt.minRemaining})
				if err != nil || n != tt.want {
					t.Errorf("token %d, %v; want %d", n, err, tt.want)
				}
			})
		})
	}
}

func TestStaleWhileValid(t *testing.T) {
	for _, code := range []auth.Code{auth.CodeThrottled, auth.CodeUnavailable, auth.CodeUnreachable} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cache.New(cache.Options{MaxSize: 10})
				o := &office{life: time.Hour}
				key := keyOf(t, "a", "sa")
				mustAsk(t, c, key, o)
				o.err = temporary(code)
				for age := 50; age < 60; age++ { // after minute 55, less life is left than the floor of five minutes
					time.Sleep(time.Until(start(t).Add(time.Duration(age) * time.Minute)))
					if n := mustAsk(t, c, key, o); n != 1 {
						t.Fatalf("minute %d: token %d, want the still valid one", age, n)
					}
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{}); auth.CodeOf(err) != code {
					t.Errorf("after its end: %v, want %s", err, code)
				}
				o.err = nil
				time.Sleep(2 * time.Minute)
				if n := mustAsk(t, c, key, o); n != 2 {
					t.Errorf("token %d after recovery, want 2", n)
				}
			})
		})
	}
}

// start returns the first moment of synctest's clock.
func start(t *testing.T) time.Time {
	t.Helper()
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
}

func TestRefusedRefreshDropsTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{life: time.Hour}
		key := keyOf(t, "a", "sa")
		mustAsk(t, c, key, o)
		o.err = refused()
		time.Sleep(52 * time.Minute)
		mustAsk(t, c, key, o) // the token is due: this use starts its refresh
		synctest.Wait()
		if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{}); auth.CodeOf(err) != auth.CodeTrustRefused {
			t.Errorf("got %v, want the refusal at once", err)
		}
		if c.Len() != 0 {
			t.Error("the refused token is still kept")
		}
	})
}

func TestFailuresAreRememberedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{err: refused()}
		key := keyOf(t, "a", "sa")
		var attempts []time.Duration
		for range 600 { // ten minutes, asking every second
			before := o.calls.Load()
			if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{}); auth.CodeOf(err) != auth.CodeTrustRefused {
				t.Fatal(err)
			}
			if o.calls.Load() != before {
				attempts = append(attempts, time.Since(start(t)))
			}
			time.Sleep(time.Second)
		}
		var gaps []string
		for i := 1; i < 8; i++ {
			gaps = append(gaps, (attempts[i] - attempts[i-1]).String())
		}
		if got, want := strings.Join(gaps, " "), "1s 2s 4s 8s 16s 32s 1m0s"; got != want {
			t.Errorf("gaps between exchanges %s, want %s", got, want)
		}
		before := o.calls.Load()
		if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{RetryNow: true}); err == nil {
			t.Fatal("no error")
		}
		if o.calls.Load() != before+1 {
			t.Error("RetryNow did not pass the remembered failure")
		}
	})
}

// TestRetryNowHasAPace checks that callers with RetryNow get a retry of a failed exchange, but at
// most every two seconds.
func TestRetryNowHasAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{err: refused()}
		key := keyOf(t, "a", "sa")
		begun := start(t)
		for range 100 { // as if many objects of one account asked without a pause
			var asked sync.WaitGroup
			for range 10 {
				asked.Go(func() {
					if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{RetryNow: true}); auth.CodeOf(err) != auth.CodeTrustRefused {
						t.Error(err)
					}
				})
			}
			asked.Wait()
		}
		if calls, took := o.calls.Load(), time.Since(begun); calls < 100 || took != time.Duration(calls-1)*2*time.Second {
			t.Errorf("%d exchanges in %s, want them two seconds apart", calls, took)
		}
		// When the cause of the failure is fixed, a call with RetryNow gets a token after at most
		// two seconds.
		o.err, o.life = nil, time.Hour
		if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{RetryNow: true}); err != nil {
			t.Error(err)
		}
		// A caller's own deadline ends the call even during the pause of two seconds.
		other := &office{err: refused()}
		_, _ = ask(t.Context(), c, keyOf(t, "a", "other"), other, auth.FetchOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ask(ctx, c, keyOf(t, "a", "other"), other, auth.FetchOptions{RetryNow: true}); !errors.Is(err, context.DeadlineExceeded) || other.calls.Load() != 1 {
			t.Errorf("%v after %d exchanges", err, other.calls.Load())
		}
		time.Sleep(2 * time.Second) // the exchange outlives the call; wait until it ends
	})
}

// TestRetryNowDoesNotPassRetryAfter checks that RetryNow does not shorten a pause that the cloud
// asked for. Controllers set RetryNow after each change of an object. A tenant who changes an
// object all the time must not cause calls during the pause, because a cloud's throttling affects
// all tenants. Only after a refusal may RetryNow shorten the pause.
func TestRetryNowDoesNotPassRetryAfter(t *testing.T) {
	for code, held := range map[auth.Code]bool{auth.CodeThrottled: true, auth.CodeUnavailable: true, auth.CodeTrustRefused: false} {
		synctest.Test(t, func(t *testing.T) {
			c := cache.New(cache.Options{MaxSize: 10})
			o := &office{err: &auth.Error{Code: code, RetryAfter: time.Minute, Err: errors.New("slow down")}}
			key := keyOf(t, "a", "sa")
			begun := start(t)
			for time.Since(begun) < time.Minute {
				if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{RetryNow: true}); auth.CodeOf(err) != code {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if calls := o.calls.Load(); (calls == 1) != held {
				t.Errorf("%s: %d exchanges within the minute", code, calls)
			}
			o.err, o.life = nil, time.Hour
			if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{RetryNow: true}); err != nil {
				t.Errorf("%s: after the minute: %v", code, err)
			}
		})
	}
}

func TestRetryAfterIsHonouredUpToABound(t *testing.T) {
	for _, tt := range []struct{ asked, waits time.Duration }{
		{5 * time.Minute, 5 * time.Minute}, {24 * time.Hour, 15 * time.Minute}, {0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := cache.New(cache.Options{MaxSize: 10})
			o := &office{err: &auth.Error{Code: auth.CodeThrottled, RetryAfter: tt.asked, Err: errors.New("slow down")}}
			key := keyOf(t, "a", "sa")
			for _, at := range []time.Duration{0, tt.waits - time.Millisecond, tt.waits} {
				time.Sleep(time.Until(start(t).Add(at)))
				_, _ = ask(t.Context(), c, key, o, auth.FetchOptions{})
				want := int64(1)
				if at == tt.waits {
					want = 2
				}
				if got := o.calls.Load(); got != want {
					t.Errorf("Retry-After %s: %d exchanges after %s, want %d", tt.asked, got, at, want)
				}
			}
		})
	}
}

func TestMaxDurationBoundsEveryServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10, MaxDuration: 10 * time.Minute})
		o := &office{life: 12 * time.Hour}
		key := keyOf(t, "a", "sa")
		mustAsk(t, c, key, o)
		o.err = temporary(auth.CodeUnavailable)
		time.Sleep(10 * time.Minute)
		if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{}); err == nil {
			t.Error("a token was served beyond the maximum")
		}
	})
}

func TestInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{life: time.Hour}
		mine, scoped, other := keyOf(t, "a", "sa"), keyOf(t, "a", "sa"), keyOf(t, "a", "other")
		scoped.STSRegion = "eu-west-1"
		for tenant, key := range map[string]auth.Key{"a": mine, "b": scoped, "c": other} {
			if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{Tenant: tenant}); err != nil {
				t.Fatal(err)
			}
		}
		c.Invalidate(mine.Subject) // drops the subject's tokens, whichever tenant asked for them
		for _, tt := range []struct {
			key  auth.Key
			kept bool
		}{{mine, false}, {scoped, false}, {other, true}} {
			if _, ok := c.Get(tt.key, 0, auth.InvolvedObject{}); ok != tt.kept {
				t.Errorf("%s kept: %t, want %t", tt.key, ok, tt.kept)
			}
		}
		c.Invalidate(mine.Subject) // without tokens, Invalidate must be harmless
	})
}

// TestInvalidateKeys checks that only tokens and exchanges with selected keys are dropped.
func TestInvalidateKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{life: time.Hour, takes: time.Second}
		stale, kept := keyOf(t, "a", "sa"), keyOf(t, "a", "sa")
		stale.IdentityFingerprint, kept.IdentityFingerprint = "x@a", "x@b"
		picks := func(key auth.Key) bool { return key.IdentityFingerprint == "x@a" }
		first, other := mustAsk(t, c, stale, o), mustAsk(t, c, kept, o)
		c.InvalidateKeys(stale.Subject, picks)
		if n := mustAsk(t, c, stale, o); n == first {
			t.Error("a stale token is served")
		}
		if n := mustAsk(t, c, kept, o); n != other {
			t.Error("another key's token is gone")
		}
		c.Invalidate(stale.Subject)
		var wg sync.WaitGroup
		wg.Go(func() { mustAsk(t, c, stale, o) })
		wg.Go(func() { mustAsk(t, c, kept, o) })
		time.Sleep(time.Second / 2)
		c.InvalidateKeys(stale.Subject, picks)
		wg.Wait()
		for key, want := range map[auth.Key]bool{stale: false, kept: true} {
			if _, ok := c.Get(key, 0, auth.InvolvedObject{}); ok != want {
				t.Errorf("%s kept: %t, want %t", key, ok, want)
			}
		}
	})
}

func TestFlightBegunBeforeAChangeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		o := &office{life: time.Hour, takes: time.Second}
		key := keyOf(t, "a", "sa")
		var wg sync.WaitGroup
		wg.Go(func() {
			if n := mustAsk(t, c, key, o); n != 1 {
				t.Errorf("the one who waited got token %d", n)
			}
		})
		time.Sleep(time.Second / 2)
		c.Invalidate(key.Subject)
		wg.Go(func() { // starts after the change: must not join the old flight
			if n := mustAsk(t, c, key, o); n != 2 {
				t.Errorf("the later one got token %d, want its own", n)
			}
		})
		wg.Wait()
		if n := mustAsk(t, c, key, o); n != 2 || o.calls.Load() != 2 {
			t.Errorf("kept token %d of %d, want the second", n, o.calls.Load())
		}
	})
}

// TestChangesWhileFlightsAreUnderWay checks an account that changes again and again. No token of an
// earlier state of the account is stored. The token of another account is stored.
func TestChangesWhileFlightsAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 10})
		mine, theirs := &office{life: time.Hour, takes: 10 * time.Second}, &office{life: time.Hour, takes: 10 * time.Second}
		key, neighbour := keyOf(t, "a", "sa"), keyOf(t, "a", "other")
		var wg sync.WaitGroup
		wg.Go(func() { mustAsk(t, c, neighbour, theirs) })
		for i := range 3 {
			wg.Go(func() {
				if _, err := ask(t.Context(), c, key, mine, auth.FetchOptions{Tenant: fmt.Sprint("tenant-", i)}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			c.Invalidate(key.Subject)
		}
		wg.Wait()
		if _, ok := c.Get(key, 0, auth.InvolvedObject{}); ok || mine.calls.Load() != 3 {
			t.Errorf("kept: %t, after %d exchanges; want none of three", ok, mine.calls.Load())
		}
		if _, ok := c.Get(neighbour, 0, auth.InvolvedObject{}); !ok {
			t.Error("the neighbour's token went too")
		}
		if n := mustAsk(t, c, key, mine); n != 4 {
			t.Errorf("token %d, want a new one", n)
		}
	})
}

func TestTokenOfAnotherKeyIsNotKept(t *testing.T) {
	c := cache.New(cache.Options{MaxSize: 10})
	asked, issued := keyOf(t, "a", "sa"), keyOf(t, "a", "sa")
	issued.UID = "another"
	o := &office{life: time.Hour}
	if _, err := c.Fetch(t.Context(), asked, auth.FetchOptions{}, o.fetch(issued)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []auth.Key{asked, issued} {
		if _, ok := c.Get(key, 0, auth.InvolvedObject{}); ok {
			t.Errorf("kept under %s", key)
		}
	}
}

// TestZeroOptionsKeepTheDefaultNumberOfTokens checks that the zero MaxSize means the default, not
// KeepNothing.
func TestZeroOptionsKeepTheDefaultNumberOfTokens(t *testing.T) {
	c := cache.New(cache.Options{})
	o := &office{life: time.Hour}
	for i := range cache.DefaultMaxSize + 1 {
		mustAsk(t, c, keyOf(t, "a", "sa-"+strconv.Itoa(i)), o)
	}
	if got := c.Len(); got != cache.DefaultMaxSize {
		t.Errorf("%d tokens are kept, want %d", got, cache.DefaultMaxSize)
	}
}

func TestKeepNothing(t *testing.T) {
	c := cache.New(cache.Options{MaxSize: cache.KeepNothing})
	o := &office{life: time.Hour}
	key := keyOf(t, "a", "sa")
	for want := range int64(3) {
		if n := mustAsk(t, c, key, o); n != want+1 {
			t.Errorf("token %d, want %d", n, want+1)
		}
	}
	o.err = refused()
	for range 3 {
		_, _ = ask(t.Context(), c, key, o, auth.FetchOptions{})
	}
	if got := o.calls.Load(); got != 6 {
		t.Errorf("%d exchanges for 6 calls", got)
	}
	if c.Len() != 0 {
		t.Error("something is kept")
	}
}

func TestCapacityIsFair(t *testing.T) {
	const capacity = 100
	c := cache.New(cache.Options{MaxSize: capacity})
	o := &office{life: time.Hour}
	var quiet []auth.Key
	for i := range 20 {
		quiet = append(quiet, keyOf(t, "quiet", fmt.Sprintf("sa-%d", i)))
		mustAsk(t, c, quiet[i], o)
	}
	for i := range 5000 { // a tenant that takes all it can get
		mustAsk(t, c, keyOf(t, "greedy", fmt.Sprintf("sa-%d", i)), o)
	}
	for _, key := range quiet {
		if _, ok := c.Get(key, 0, auth.InvolvedObject{}); !ok {
			t.Errorf("%s was evicted by another tenant", key)
		}
	}
	if got := c.Len(); got != capacity {
		t.Errorf("%d tokens kept, want %d", got, capacity)
	}
	// A new tenant takes its share from the tenant with the most tokens.
	for i := range 40 {
		mustAsk(t, c, keyOf(t, "new", fmt.Sprintf("sa-%d", i)), o)
	}
	kept := 0
	for i := range 40 {
		if _, ok := c.Get(keyOf(t, "new", fmt.Sprintf("sa-%d", i)), 0, auth.InvolvedObject{}); ok {
			kept++
		}
	}
	if kept != 40 {
		t.Errorf("the newcomer holds %d of its 40 tokens although a neighbour holds more", kept)
	}
}

// TestCapacityOfOne checks that an eviction never removes the new token or its tenant.
func TestCapacityOfOne(t *testing.T) {
	c := cache.New(cache.Options{MaxSize: 1})
	o := &office{life: time.Hour}
	for i := range 50 {
		key := keyOf(t, fmt.Sprintf("ns-%d", i%3), fmt.Sprintf("sa-%d", i))
		mustAsk(t, c, key, o)
		if _, ok := c.Get(key, 0, auth.InvolvedObject{}); !ok || c.Len() != 1 {
			t.Fatalf("newcomer kept: %t, %d in all", ok, c.Len())
		}
	}
}

func TestWorkingSetTooLargeWarnsOnce(t *testing.T) {
	var out strings.Builder
	c := cache.New(cache.Options{MaxSize: 100, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	o := &office{life: time.Hour}
	const rounds, keys = 50, 120
	for range rounds {
		for i := range keys {
			mustAsk(t, c, keyOf(t, "a", fmt.Sprintf("sa-%d", i)), o)
		}
	}
	if rate := 1 - float64(o.calls.Load())/(rounds*keys); rate < 0.65 {
		t.Errorf("hit rate %.2f, want at least 0.65", rate)
	}
	if n := strings.Count(out.String(), "working set"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, out.String())
	}
}

// TestHangingTenantIsBounded checks a tenant whose exchanges hang. While 64 of them run, the
// tenant's next 1024 flights wait in order, and more flights are refused. Other tenants are not
// affected.
func TestHangingTenantIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 2000})
		hang, fine := &office{life: time.Hour, takes: 20 * time.Second}, &office{life: time.Hour}
		var order []string // names in the order in which their exchanges started
		var mu sync.Mutex
		get := func(ctx context.Context, name string) error {
			key := keyOf(t, "hanging", name)
			_, err := c.Fetch(ctx, key, auth.FetchOptions{Tenant: "hanging"}, func(ctx context.Context) (auth.Fetched, error) {
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				return hang.fetch(key)(ctx)
			})
			return err
		}
		var wg sync.WaitGroup
		for i := range 64 + 1024 {
			wg.Go(func() {
				// Most of these calls wait in the queue for longer than ExchangeTimeout. None of
				// them fails, because the timeout counts from the start of the exchange.
				if err := get(t.Context(), fmt.Sprint("sa-", i)); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		if hang.calls.Load() != 64 {
			t.Errorf("%d exchanges under way, want 64", hang.calls.Load())
		}
		if err := get(t.Context(), "one-more"); auth.CodeOf(err) != auth.CodeThrottled || time.Since(start(t)) != 0 {
			t.Errorf("beyond the queue: %v, want %s at once", err, auth.CodeThrottled)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		// The flight of sa-1000 is in the queue already, so this caller waits until its own
		// deadline.
		if err := get(ctx, "sa-1000"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in the queue: %v, want the caller's deadline", err)
		}
		mustAsk(t, c, keyOf(t, "other", "sa"), fine)
		wg.Wait()
		// The scheduler decides the order within one round of 64, so compare only the rounds.
		for i := 64; i < len(order); i += 64 {
			n := 0
			if _, err := fmt.Sscanf(order[i], "sa-%d", &n); err != nil || n/64 != i/64 {
				t.Fatalf("start %d was that of %s", i, order[i])
			}
		}
		mustAsk(t, c, keyOf(t, "hanging", "later"), fine)
	})
}

// TestCapacityIsFairAmongThoseWhoBorrow checks that a token counts towards the tenant that asks for
// it. It must not count towards the namespace of the subject.
func TestCapacityIsFairAmongThoseWhoBorrow(t *testing.T) {
	c := cache.New(cache.Options{MaxSize: 100})
	o := &office{life: time.Hour}
	get := func(tenant string, i int) auth.Key {
		key := keyOf(t, "operators", fmt.Sprintf("lent-to-%s-%d", tenant, i))
		if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{Tenant: tenant}); err != nil {
			t.Fatal(err)
		}
		return key
	}
	var quiet []auth.Key
	for i := range 20 {
		quiet = append(quiet, get("quiet", i))
	}
	for i := range 1000 {
		get("greedy", i)
	}
	for _, key := range quiet {
		if _, ok := c.Get(key, 0, auth.InvolvedObject{}); !ok {
			t.Errorf("%s was evicted by another tenant", key)
		}
	}
}

func TestTwoTenantsShareALentToken(t *testing.T) {
	c := cache.New(cache.Options{MaxSize: 100})
	o, lent := &office{life: time.Hour}, keyOf(t, "operators", "lent")
	for _, tenant := range []string{"a", "b"} {
		if n, err := ask(t.Context(), c, lent, o, auth.FetchOptions{Tenant: tenant}); n != 1 || err != nil {
			t.Errorf("tenant %q: token %d, %v; want the one that all share", tenant, n, err)
		}
	}
}

func TestReadsRaceRefreshes(t *testing.T) {
	c := cache.New(cache.Options{MaxSize: 8, MaxDuration: 2 * time.Millisecond})
	var keys []auth.Key
	for i := range 12 {
		keys = append(keys, keyOf(t, fmt.Sprintf("ns-%d", i%3), fmt.Sprintf("sa-%d", i)))
	}
	o := &office{life: time.Hour}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				key := keys[(i+w)%len(keys)]
				switch {
				case i%101 == 0:
					c.Invalidate(key.Subject)
				case i%503 == 0:
					_ = testutil.CollectAndCount(c)
				default:
					if _, err := ask(t.Context(), c, key, o, auth.FetchOptions{}); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if got := c.Len(); got > 8 {
		t.Errorf("%d tokens kept, more than the capacity", got)
	}
}

func TestMetrics(t *testing.T) {
	c := cache.New(cache.Options{MaxSize: 1, ObjectMetrics: true})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	o := &office{life: time.Hour}
	object := auth.InvolvedObject{Kind: "OCIRepository", Namespace: "a", Name: "repo", Operation: "reconcile"}
	// Fetch counts one miss for the object, and Get counts two hits.
	for range 3 {
		if _, err := ask(t.Context(), c, keyOf(t, "a", "sa"), o, auth.FetchOptions{InvolvedObject: object}); err != nil {
			t.Fatal(err)
		}
	}
	mustAsk(t, c, keyOf(t, "a", "evicts"), o)
	o.err = refused()
	_, _ = ask(t.Context(), c, keyOf(t, "b", "sa"), o, auth.FetchOptions{})
	want := `
# HELP lanyard_token_cache_cached_items Valid tokens in memory.
# TYPE lanyard_token_cache_cached_items gauge
lanyard_token_cache_cached_items 0
# HELP lanyard_token_cache_events_total Hits and misses, by the object on whose behalf the token was asked for.
# TYPE lanyard_token_cache_events_total counter
lanyard_token_cache_events_total{event="cache_hit",kind="OCIRepository",name="repo",namespace="a",operation="reconcile"} 2
lanyard_token_cache_events_total{event="cache_miss",kind="OCIRepository",name="repo",namespace="a",operation="reconcile"} 1
# HELP lanyard_token_cache_evictions_total Valid tokens given up because the capacity was too small.
# TYPE lanyard_token_cache_evictions_total counter
lanyard_token_cache_evictions_total 2
# HELP lanyard_token_cache_requests_total Calls answered, by status: hit (from memory), miss (a token was got), failure.
# TYPE lanyard_token_cache_requests_total counter
lanyard_token_cache_requests_total{status="failure"} 1
lanyard_token_cache_requests_total{status="hit"} 2
lanyard_token_cache_requests_total{status="miss"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	c.Forget("OCIRepository", "a", "repo")
	if n := testutil.CollectAndCount(c, "lanyard_token_cache_events_total"); n != 0 {
		t.Errorf("%d series of an object that is gone", n)
	}
}
