package share_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/auth/share"
)

func TestRoom(t *testing.T) {
	for _, c := range []struct{ places, used, own, want int }{
		{places: 10, used: 0, own: 0, want: 5},
		{places: 10, used: 4, own: 4, want: 1},
		{places: 10, used: 5, own: 5, want: 0},
		{places: 10, used: 5, own: 0, want: 2},
		{places: 10, used: 7, own: 0, want: 1}, // (10-7)/2, rounded down, is 1
		{places: 10, used: 9, own: 0, want: 1}, // a tenant may always use one place
		{places: 10, used: 9, own: 1, want: 0},
		{places: 10, used: 10, own: 0, want: 1}, // no place is free, but Room does not check this
		{places: 10, used: 10, own: 5, want: -3},
		{places: 1, used: 0, own: 0, want: 1},
		{places: 1, used: 1, own: 1, want: 0},
		{places: 1, used: 20, own: 20, want: -19}, // Resize has reduced the number of places
	} {
		if got := share.Room(c.places, c.used, c.own); got != c.want {
			t.Errorf("Room(%d, %d, %d) = %d, want %d", c.places, c.used, c.own, got, c.want)
		}
	}
}

// crowd calls Enter for many callers, each in its own goroutine. The crowd records which callers
// got a place, and which callers got an error. A test must use a crowd in a synctest bubble. The
// crowd's methods call synctest.Wait, and so return only when each caller has a result or waits.
type crowd struct {
	*share.Places

	t       *testing.T
	mu      sync.Mutex
	entered []string         // names of callers with a place, in the order of their entry
	refused map[string]error // errors of the callers that got no place
	all     sync.WaitGroup
}

func newCrowd(t *testing.T, limits share.Limits) *crowd {
	t.Helper()
	c := &crowd{Places: share.New(limits), t: t, refused: map[string]error{}}
	t.Cleanup(c.all.Wait) // t.Context() has ended by then, so no caller waits any more
	return c
}

// enter starts a caller for each name, such as a1 and a2. The first letter of a name is the tenant.
// The method returns when each caller has a place, has an error, or waits.
func (c *crowd) enter(ctx context.Context, names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.all.Go(func() {
			err := c.Enter(ctx, name[:1])
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.refused[name] = err
			} else {
				c.entered = append(c.entered, name)
			}
		})
		synctest.Wait()
	}
}

// leave frees one place of each given tenant, one place after the other.
func (c *crowd) leave(tenants ...string) {
	c.t.Helper()
	for _, tenant := range tenants {
		c.Leave(tenant)
		synctest.Wait()
	}
}

// want checks which callers got a place since the last call of want. These must be exactly the
// callers with the given names, in the given order.
func (c *crowd) want(names ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.entered, names) {
		c.t.Errorf("entered: %v, want %v", c.entered, names)
	}
	c.entered = nil
}

// wantRefused checks which callers got an error since the last call of wantRefused. These must be
// exactly the callers with the given names. Each error must have the given reason.
func (c *crowd) wantRefused(reason error, names ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if err := c.refused[name]; !errors.Is(err, reason) {
			c.t.Errorf("%s: %v, want %v", name, err, reason)
		}
		delete(c.refused, name)
	}
	if len(c.refused) > 0 {
		c.t.Errorf("also refused: %v", c.refused)
	}
}

// names returns names of callers of a tenant. Each name is the tenant and a number, such as a1 and
// a2. The parameter count is the number of names.
func names(tenant string, count int) []string {
	list := make([]string, count)
	for i := range list {
		list[i] = fmt.Sprint(tenant, i+1)
	}
	return list
}

// TestShares checks how six tenants share ten places. The tenants come one after the other, each
// with 11 callers. The first five tenants get five, two, one, one and one place. The sixth tenant
// gets the first place that becomes free.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t, share.Limits{Places: 10, Waiting: 100, WaitingPerTenant: 100})
		c.enter(ctx, names("a", 11)...)
		c.want(names("a", 5)...)
		c.enter(ctx, names("b", 11)...)
		c.want("b1", "b2")
		for _, tenant := range []string{"c", "d", "e"} {
			c.enter(ctx, names(tenant, 11)...)
			c.want(tenant + "1")
		}
		c.enter(ctx, names("f", 11)...)
		c.want() // all ten places are in use
		c.leave("a")
		c.want("f1") // the tenants a to e already use their whole shares
	})
}

// TestTurns checks in which order waiting callers get free places. The tenants get places in turn
// (round robin). The callers of one tenant get places in the order of their arrival.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t, share.Limits{Places: 1, Waiting: 100, WaitingPerTenant: 100})
		c.enter(ctx, names("a", 30)...)
		c.enter(ctx, "b1", "b2", "c1")
		c.want("a1")
		c.leave("a", "a", "b", "c", "a")
		c.want("a2", "b1", "c1", "a3", "b2")
		c.enter(ctx, "c2") // a caller of tenant c waits again, until one caller of tenant a has got a place
		c.leave("b", "a", "c", "a")
		c.want("a4", "c2", "a5", "a6")
	})
}

// TestManyTenants checks that a tenant with many callers does not delay 19 other tenants. The
// callers of the first tenant have waited longest. Nevertheless, each other tenant must get a place
// before these waiting callers.
func TestManyTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t, share.Limits{Places: 20, Waiting: 1000, WaitingPerTenant: 100})
		c.enter(ctx, names("a", 50)...)
		c.want(names("a", 10)...)
		var want []string
		for tenant := 'b'; tenant <= 't'; tenant++ {
			c.enter(ctx, string(tenant)+"1")
			want = append(want, string(tenant)+"1")
		}
		for range 9 {
			c.leave("a")
		}
		c.want(want...)
	})
}

// TestGiveUp checks that a caller leaves the queue when the caller's context ends. If the caller
// got a place at the same moment, the place must go to the next caller.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, share.Limits{Places: 1, Waiting: 3, WaitingPerTenant: 3})
		gone := errors.New("the caller is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		c.enter(ctx, "a1", "a2", "a3")
		c.enter(t.Context(), "a4")
		start := time.Now()
		cancel(gone)
		synctest.Wait()
		c.wantRefused(gone, "a2", "a3")
		c.want("a1")

		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		c.enter(short, "b1", "b2") // two more callers may wait, because a2 and a3 are gone
		time.Sleep(time.Second)
		synctest.Wait()
		c.wantRefused(context.DeadlineExceeded, "b1", "b2")
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("waited %s", waited)
		}
		c.leave("a")
		c.want("a4")
		c.leave("a")
		c.enter(t.Context(), "b3")
		c.want("b3")

		for range 1000 { // in each round, a place becomes free at the moment when the context ends
			ctx, cancel := context.WithCancelCause(t.Context())
			c.enter(ctx, "a5")
			go c.Leave("b")
			go cancel(gone)
			synctest.Wait()
			if len(c.entered) > 0 {
				c.leave("a")
			}
			c.entered, c.refused = nil, map[string]error{}
			c.enter(t.Context(), "b6")
			c.want("b6")
		}
		c.leave("b")
	})
}

// TestWaitingIsBounded checks both limits on the number of waiting callers. At the limit for all
// tenants, a caller of a new tenant displaces the newest caller of the longest queue.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t, share.Limits{Places: 1, Waiting: 6, WaitingPerTenant: 4})
		c.enter(ctx, names("a", 6)...)
		c.wantRefused(share.ErrFull, "a6") // a2 to a5 wait: the maximum for one tenant
		c.enter(ctx, "b1", "b2")
		c.wantRefused(share.ErrFull)
		c.enter(ctx, "c1")
		c.wantRefused(share.ErrFull, "a5")
		c.enter(ctx, "b3")
		c.wantRefused(share.ErrFull, "b3") // with b3, the queue of b would be the longest
		c.enter(ctx, "c2")
		c.wantRefused(share.ErrFull, "a4")
		c.enter(ctx, "d1")
		c.wantRefused(share.ErrFull, "a3") // three queues are equally long, so the first queue loses its newest caller
		c.leave("a", "a", "b", "c", "d", "b")
		c.want("a1", "a2", "b1", "c1", "d1", "b2", "c2")
	})
}

// TestNobodyMayWait checks Enter with the limit Waiting = 0. If no place is free, Enter must return
// [share.ErrFull] at once.
func TestNobodyMayWait(t *testing.T) {
	p := share.New(share.Limits{Places: 1, WaitingPerTenant: 1})
	if err := p.Enter(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := p.Enter(t.Context(), "b"); !errors.Is(err, share.ErrFull) {
		t.Error(err)
	}
}

// TestResize checks that callers keep their places when Resize reduces the number of places. When
// Resize increases the number, the new places must go to waiting callers.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := newCrowd(t, share.Limits{Places: 4, Waiting: 10, WaitingPerTenant: 10})
		c.enter(ctx, "a1", "a2", "b1", "c1")
		c.want("a1", "a2", "b1", "c1")
		c.Resize(1)
		c.enter(ctx, "d1", "d2", "e1")
		c.leave("a", "a", "b")
		c.want()
		c.leave("c")
		c.want("d1")
		c.Resize(8)
		synctest.Wait()
		c.mu.Lock()
		slices.Sort(c.entered) // d2 and e1 entered at the same moment, in any order
		c.mu.Unlock()
		c.want("d2", "e1")
	})
}

// TestDismiss checks that Dismiss ends the wait of all waiting callers with the given reason. Later
// callers must wait as usual.
func TestDismiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, share.Limits{Places: 1, Waiting: 10, WaitingPerTenant: 10})
		c.enter(t.Context(), "a1", "a2", "a3", "b1")
		paused := errors.New("paused")
		c.Dismiss(paused)
		synctest.Wait()
		c.wantRefused(paused, "a2", "a3", "b1")
		c.enter(t.Context(), "b2")
		c.leave("a", "b")
		c.want("a1", "b2")
	})
}

// TestError checks the text of a [share.NoPlaceError]. The text must say how many places the tenant
// uses, and how many of its callers wait. The text must not mention other tenants.
func TestError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := newCrowd(t, share.Limits{Places: 4, Waiting: 10, WaitingPerTenant: 2})
		c.enter(ctx, "a1", "a2", "x1", "y1", "a3", "x2", "a4", "a5")
		const want = "a uses 2 places, and 2 of its calls wait: too many callers wait"
		if err := c.refused["a5"]; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		cancel(errors.New("the caller is gone"))
		c.all.Wait()
		if err := c.refused["a3"]; err == nil || !strings.HasPrefix(err.Error(), "a uses 2 places, and ") || !strings.HasSuffix(err.Error(), "the caller is gone") {
			t.Error(err)
		}
	})
}

// TestLeaveWithoutEnter checks that Leave panics for a tenant without a place.
func TestLeaveWithoutEnter(t *testing.T) {
	p := share.New(share.Limits{Places: 1})
	if err := p.Enter(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	p.Leave("b")
}

// TestNeverTooMany checks that the callers never use more places than exist. Many callers of many
// tenants enter, give up and leave at the same time. Afterwards, no record of a caller may remain.
func TestNeverTooMany(t *testing.T) {
	const places = 7
	p := share.New(share.Limits{Places: places, Waiting: 40, WaitingPerTenant: 20})
	var mu sync.Mutex
	used, served := 0, 0
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			tenant := string(rune('a' + i%13))
			for round := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i+round)%5)*100*time.Microsecond)
				if p.Enter(ctx, tenant) == nil {
					mu.Lock()
					if used++; used > places {
						t.Errorf("%d places in use", used)
					}
					served++
					mu.Unlock()
					time.Sleep(time.Duration(i%3) * 10 * time.Microsecond)
					mu.Lock()
					used--
					mu.Unlock()
					p.Leave(tenant)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if served == 0 {
		t.Error("nobody got a place")
	}
	if users, queues, waiting := share.Remaining(p); users+queues+waiting > 0 {
		t.Errorf("%d users, %d queues and %d waiting callers remain", users, queues, waiting)
	}
}

func BenchmarkEnter(b *testing.B) {
	p := share.New(share.Limits{Places: 20, Waiting: 100, WaitingPerTenant: 100})
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Enter(b.Context(), "tenant-a"); err != nil {
			b.Fatal(err)
		}
		p.Leave("tenant-a")
	}
}
