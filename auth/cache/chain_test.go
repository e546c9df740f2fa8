package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
)

// link is an identity that needs the tokens of other identities, its sources.
type link struct {
	key     auth.Key
	office  *office
	sources []*link
}

func newLink(t *testing.T, name string, o *office, sources ...*link) *link {
	t.Helper()
	return &link{key: keyOf(t, "a", name), office: o, sources: sources}
}

// get asks the cache for the link's token on behalf of tenant a. The fetch first gets the token
// from the link's office, which is a fake issuer. It then asks the cache for the tokens of all the
// link's sources concurrently.
func (l *link) get(ctx context.Context, c *cache.Cache) error {
	_, err := c.Fetch(ctx, l.key, auth.FetchOptions{Tenant: "a"}, func(ctx context.Context) (auth.Fetched, error) {
		fetched, err := l.office.fetch(l.key)(ctx)
		if err != nil {
			return fetched, err
		}
		return fetched, together(len(l.sources), func(i int) error { return l.sources[i].get(ctx, c) })
	})
	return err
}

// together makes n calls at once, and joins their errors.
func together(n int, call func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestManyChainsOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 1000})
		o := &office{life: time.Hour, takes: time.Second}
		err := together(200, func(i int) error {
			return newLink(t, fmt.Sprint("role-", i), o, newLink(t, fmt.Sprint("source-", i), o)).get(t.Context(), c)
		})
		if err != nil || o.issued.Load() != 400 {
			t.Errorf("%d tokens, %v; want two for each of 200 chains", o.issued.Load(), err)
		}
		if took := time.Since(start(t)); took != 8*time.Second {
			t.Errorf("took %s, want four rounds of 64 chains, of two seconds each", took)
		}
	})
}

// TestFlightInTheQueueThatOthersNeed checks that a queued flight starts at once if all running
// flights of its tenant need it.
func TestFlightInTheQueueThatOthersNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 1000})
		o := &office{life: time.Hour, takes: time.Second}
		source := newLink(t, "source", o)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if err := newLink(t, fmt.Sprint("role-", i), o, source).get(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second / 2)
		wg.Go(func() {
			if err := source.get(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if took := time.Since(start(t)); took != 2*time.Second || o.calls.Load() != 65 {
			t.Errorf("took %s and %d exchanges, want 2s and 65", took, o.calls.Load())
		}
	})
}

func TestCircles(t *testing.T) {
	circle := func(t *testing.T, links int, o *office) []*link {
		t.Helper()
		all := make([]*link, links)
		for i := range all {
			all[i] = newLink(t, fmt.Sprint("role-", i), o)
		}
		for i, l := range all {
			l.sources = []*link{all[(i+1)%links]}
		}
		return all
	}
	for _, size := range []int{cache.KeepNothing, 1000} {
		for _, links := range []int{1, 2, 3, 50} {
			for name, callers := range map[string]int{"one caller": 1, "a caller for each": links} {
				t.Run(fmt.Sprintf("%d links, %s, capacity %d", links, name, size), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := cache.New(cache.Options{MaxSize: size, ExchangeTimeout: time.Hour})
						o := &office{life: time.Hour, takes: time.Second}
						all := circle(t, links, o)
						_ = together(callers, func(i int) error {
							err := all[i].get(t.Context(), c)
							if auth.CodeOf(err) != auth.CodeIdentityInvalid || auth.IsTemporary(err) {
								t.Errorf("link %d: %v, want %s", i, err, auth.CodeIdentityInvalid)
							}
							return err
						})
						if took := time.Since(start(t)); took > time.Duration(links)*time.Second {
							t.Errorf("found after %s", took)
						}
						if c.Len() != 0 {
							t.Errorf("%d tokens are kept", c.Len())
						}
					})
				})
			}
		}
	}
}

// TestDiamondIsNoCircle checks that an identity may need another identity on two paths. Two paths
// to one identity are no circle.
func TestDiamondIsNoCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 1000})
		o := &office{life: time.Hour, takes: time.Second}
		source := newLink(t, "source", o)
		top := newLink(t, "top", o, newLink(t, "left", o, source), newLink(t, "right", o, source))
		if err := top.get(t.Context(), c); err != nil || o.calls.Load() != 4 {
			t.Errorf("%v after %d exchanges, want four", err, o.calls.Load())
		}
	})
}

// TestFlightThatGaveUpIsNoCircle checks two flights that need each other, but not at the same time:
// the first gives up waiting before the second needs it. Both must get a token.
func TestFlightThatGaveUpIsNoCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 1000})
		o := &office{life: time.Hour, takes: 2 * time.Second}
		patient := newLink(t, "patient", o)
		hasty := keyOf(t, "a", "hasty")
		patient.sources = []*link{{key: hasty, office: o}}
		_, err := c.Fetch(t.Context(), hasty, auth.FetchOptions{Tenant: "a"}, func(ctx context.Context) (auth.Fetched, error) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := patient.get(short, c); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the deadline", err)
			}
			return (&office{life: time.Hour, takes: 3 * time.Second}).fetch(hasty)(ctx)
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if _, ok := c.Get(patient.key, 0, auth.InvolvedObject{}); !ok {
			t.Error("the one that came to need the other has no token")
		}
	})
}

// TestRefreshOfASourceIsNotNeeded checks a fetch for one key, role, that needs the token of another
// key, source. The cache has a valid token of source, which is due for its refresh. The fetch must
// get this token without waiting for the refresh. Waiting would close a circle, because here the
// refresh needs the token of role.
func TestRefreshOfASourceIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 1000})
		o := &office{life: time.Hour, takes: time.Second}
		role, source := newLink(t, "role", o), newLink(t, "source", o)
		mustAsk(t, c, source.key, o)
		// After the sleep, the token of source is due for its refresh, but has six minutes left.
		// Callers wait for a refresh only if five minutes or less are left.
		time.Sleep(54 * time.Minute)
		_, err := c.Fetch(t.Context(), role.key, auth.FetchOptions{Tenant: "a"}, func(ctx context.Context) (auth.Fetched, error) {
			source.sources = []*link{role}
			if err := source.get(ctx, c); err != nil {
				t.Error(err)
			}
			return (&office{life: time.Hour, takes: 3 * time.Second}).fetch(role.key)(ctx)
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if _, ok := c.Get(source.key, 54*time.Minute, auth.InvolvedObject{}); !ok {
			t.Error("the source was not refreshed")
		}
	})
}

// TestContextOfAFlightThatLanded calls Fetch with the context of another fetch that has ended. The
// limit of 64 concurrent exchanges must apply to these calls.
func TestContextOfAFlightThatLanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 1000})
		var left context.Context
		_, err := c.Fetch(t.Context(), keyOf(t, "a", "first"), auth.FetchOptions{Tenant: "a"}, func(ctx context.Context) (auth.Fetched, error) {
			left = context.WithoutCancel(ctx) //nolint:fatcontext // the context that is left behind is the test
			return (&office{life: time.Hour}).fetch(keyOf(t, "a", "first"))(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		o := &office{life: time.Hour, takes: time.Second}
		var wg sync.WaitGroup
		for i := range 65 {
			wg.Go(func() { _ = newLink(t, fmt.Sprint("later-", i), o).get(left, c) })
		}
		synctest.Wait()
		if n := o.calls.Load(); n != 64 {
			t.Errorf("%d exchanges are under way, want 64", n)
		}
		wg.Wait()
	})
}

// TestNoTenantWaitsInAnothersQueue checks a lent identity that two tenants use. While the first
// tenant's exchanges hang, the second tenant must not wait for these exchanges.
func TestNoTenantWaitsInAnothersQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 1000})
		hang, fine := &office{life: time.Hour, takes: 20 * time.Second}, &office{life: time.Hour}
		lent := keyOf(t, "operators", "lent")
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() { mustAsk(t, c, keyOf(t, "a", fmt.Sprint("sa-", i)), hang) })
		}
		synctest.Wait()
		var early atomic.Bool
		wg.Go(func() {
			if _, err := ask(t.Context(), c, lent, fine, auth.FetchOptions{Tenant: "a"}); err != nil {
				t.Error(err)
			}
			early.Store(time.Since(start(t)) == 0)
		})
		synctest.Wait()
		if fine.calls.Load() != 0 {
			t.Fatal("the first tenant has more than 64 exchanges under way")
		}
		if _, err := ask(t.Context(), c, lent, fine, auth.FetchOptions{Tenant: "b"}); err != nil || time.Since(start(t)) != 0 {
			t.Errorf("%v after %s, want a token at once", err, time.Since(start(t)))
		}
		wg.Wait()
		if !early.Load() || fine.calls.Load() != 1 {
			t.Errorf("the first got it early: %t, with %d exchanges; want one for both", early.Load(), fine.calls.Load())
		}
	})
}

// TestLentIdentityWaitsInAllQueues checks a flight that several tenants ask for while none of them
// has room. The flight waits in the queues of all these tenants. The first tenant that gets room
// starts the flight.
func TestLentIdentityWaitsInAllQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(cache.Options{MaxSize: 1000})
		offices := map[string]*office{"slow": {life: time.Hour, takes: 20 * time.Second}, "quick": {life: time.Hour, takes: time.Second}}
		var wg sync.WaitGroup
		for tenant, o := range offices {
			for i := range 64 {
				wg.Go(func() { mustAsk(t, c, keyOf(t, tenant, fmt.Sprint("sa-", i)), o) })
			}
		}
		synctest.Wait()
		fine, lent := &office{life: time.Hour}, keyOf(t, "operators", "lent")
		for _, tenant := range []string{"slow", "quick"} {
			wg.Go(func() {
				if _, err := ask(t.Context(), c, lent, fine, auth.FetchOptions{Tenant: tenant}); err != nil || time.Since(start(t)) != time.Second {
					t.Errorf("%s: %v after %s, want a token after 1s", tenant, err, time.Since(start(t)))
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if n := fine.calls.Load(); n != 1 {
			t.Errorf("%d exchanges for one key", n)
		}
	})
}

// TestRandomChains checks identities that need each other at random. An identity whose sources form
// no circle gets a token, and any other identity gets an error. No caller waits forever.
func TestRandomChains(t *testing.T) {
	const links = 150
	var circular atomic.Int64
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 8))
			c := cache.New(cache.Options{MaxSize: 2 * links, ExchangeTimeout: time.Hour})
			o := &office{life: time.Hour, takes: time.Second}
			all := make([]*link, links)
			for i := range all {
				all[i] = newLink(t, fmt.Sprint("role-", i), o)
				for range random.IntN(3) {
					if i > 0 {
						all[i].sources = append(all[i].sources, all[random.IntN(i)])
					}
				}
			}
			for range random.IntN(6) { // add sources that can close a circle
				from, to := random.IntN(10), random.IntN(links)
				all[from].sources = append(all[from].sources, all[to])
			}
			_ = together(links, func(i int) error {
				err := all[i].get(t.Context(), c)
				want := all[i].needsCircle(nil)
				if want {
					circular.Add(1)
				}
				if (err != nil) != want || want && auth.CodeOf(err) != auth.CodeIdentityInvalid {
					t.Errorf("seed %d, link %d: %v; needs a circle: %t", seed, i, err, want)
				}
				return err
			})
			if took := time.Since(start(t)); took > links*time.Second {
				t.Errorf("seed %d: took %s", seed, took)
			}
		})
	}
	if n := circular.Load(); n < 100 || n > 20*links-100 {
		t.Errorf("%d links need a circle: too few of one sort", n)
	}
}

// needsCircle extends the chain of links in path by l, by one of l's sources, by one of that
// source's sources, and so on. It reports whether any such chain has the same link twice.
func (l *link) needsCircle(path []*link) bool {
	if slices.Contains(path, l) {
		return true
	}
	path = append(slices.Clip(path), l)
	return slices.ContainsFunc(l.sources, func(source *link) bool { return source.needsCircle(path) })
}
