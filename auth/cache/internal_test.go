package cache

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

type pass struct{}

func (pass) GetDuration() time.Duration { return time.Hour }

// store puts a token for the key into the cache and charges it to the tenant, as an exchange does
// at its end.
func (c *Cache) store(tenant string, key auth.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(c.tenants.get(tenant), nil, c.issued(key, pass{}, c.now()))
}

// TestNothingIsKeptOfATenantWithNothing checks that a tenant without tokens leaves nothing in
// memory. Otherwise every namespace that ever existed would take memory.
func TestNothingIsKeptOfATenantWithNothing(t *testing.T) {
	c := New(Options{MaxSize: 10})
	for i := range 5 {
		subject, err := auth.ServiceAccount(fmt.Sprintf("tenant-%d", i), "sa")
		must.Succeed(t, err)
		// The caller's key has no UID, as if the AccountReader had not seen the account yet. The
		// key of the token has a UID. The two keys differ, so the token is not stored.
		_, err = c.Fetch(t.Context(), auth.Key{Subject: subject}, auth.FetchOptions{}, func(context.Context) (auth.Fetched, error) {
			return auth.Fetched{Key: auth.Key{Subject: subject, UID: "uid"}, Token: pass{}}, nil
		})
		must.Succeed(t, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tenants.byName) != 0 || len(c.tenants.bySize) != 0 || len(c.flights) != 0 || c.tenants.size != 0 {
		t.Errorf("%d tenants, %d in the heap, %d flights, %d entries; want none",
			len(c.tenants.byName), len(c.tenants.bySize), len(c.flights), c.tenants.size)
	}
}

// TestTokenEndsByEitherClock checks that a token ends as soon as it has expired by either of two
// clocks. The monotonic clock stops while a machine sleeps, and the wall clock may be set back.
func TestTokenEndsByEitherClock(t *testing.T) {
	c := New(Options{MaxSize: 10})
	e := c.issued(auth.Key{}, pass{}, instant{mono: time.Minute, wall: 2 * time.Minute})
	for _, tt := range []struct {
		mono, wall time.Duration
		want       bool
	}{
		{time.Minute, 2 * time.Minute, true},
		{61*time.Minute - 1, 62*time.Minute - 1, true},
		{61 * time.Minute, 2 * time.Minute, false}, // the wall clock was set back
		{time.Minute, 62 * time.Minute, false},     // the machine slept
	} {
		if got := e.valid(instant{tt.mono, tt.wall}); got != tt.want {
			t.Errorf("after %s on the monotonic clock and %s on the wall: valid is %t", tt.mono, tt.wall, got)
		}
	}
}

type eternal struct{}

func (eternal) GetDuration() time.Duration { return math.MaxInt64 }

func TestLongestLife(t *testing.T) {
	c := New(Options{MaxSize: 10, MaxDuration: math.MaxInt64})
	now := instant{mono: 50 * 365 * 24 * time.Hour, wall: 50 * 365 * 24 * time.Hour}
	if e := c.issued(auth.Key{}, eternal{}, now); !e.fresh(now, 0) {
		t.Error("a token that lives for ever has ended")
	}
}

// TestSweepOfOneSubjectIsLinear checks that the time to remove all keys of a subject does not grow
// with the square of their number. One account can have many keys, for example one for each region.
func TestSweepOfOneSubjectIsLinear(t *testing.T) {
	subject, err := auth.ServiceAccount("a", "sa")
	must.Succeed(t, err)
	sweep := func(keys int) time.Duration {
		c := New(Options{MaxSize: keys})
		for i := range keys {
			c.store("a", auth.Key{Subject: subject, Target: auth.Target{Image: fmt.Sprint(i)}})
		}
		start := time.Now()
		c.sweep(instant{mono: 2 * time.Hour, wall: 2 * time.Hour})
		took := time.Since(start)
		if c.tenants.size != 0 || c.Len() != 0 {
			t.Errorf("%d entries are left", c.tenants.size)
		}
		return took
	}
	// 32 times as many entries take about 32 times as long, and not 1024 times. On a busy machine,
	// only the best of several attempts counts.
	few, many := time.Hour, time.Hour
	for range 20 {
		few, many = min(few, sweep(2000)), min(many, sweep(64_000))
		if many <= 400*few {
			return
		}
	}
	t.Errorf("2000 entries took %s, 64000 took %s", few, many)
}

// TestTenantWhoseLastTokenGoes checks that the cache forgets a tenant when its last token is
// removed, here because the subject has changed. The cache must not forget another tenant.
func TestTenantWhoseLastTokenGoes(t *testing.T) {
	c := New(Options{MaxSize: 10})
	key := variants(t)[0]
	for _, tenant := range []string{"first", "other"} {
		kept := key
		kept.Image = tenant
		c.store(tenant, kept)
	}
	key.Image = "first"
	_, err := c.Fetch(t.Context(), key, auth.FetchOptions{Tenant: "first", MinRemaining: 2 * time.Hour}, func(context.Context) (auth.Fetched, error) {
		replaced := key
		replaced.UID = "another"
		return auth.Fetched{Key: replaced, Token: pass{}}, nil
	})
	must.Succeed(t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tenants.byName) != 1 || len(c.tenants.bySize) != 1 || c.tenants.bySize[0].name != "other" {
		t.Errorf("tenants %v, %d in the heap; want the other only", c.tenants.byName, len(c.tenants.bySize))
	}
}

// BenchmarkInvalidate measures how long a change of one account holds the lock. Other tenants have
// 10,000 tokens and 10,000 exchanges in progress.
func BenchmarkInvalidate(b *testing.B) {
	const others = 10_000
	c := New(Options{MaxSize: 2 * others})
	end := make(chan struct{})
	defer close(end)
	hang := func(context.Context) (auth.Fetched, error) {
		<-end
		return auth.Fetched{}, context.Canceled
	}
	subjectOf := func(namespace string) auth.Subject {
		subject, err := auth.ServiceAccount(namespace, "sa")
		must.Succeed(b, err)
		return subject
	}
	fill := func(subject auth.Subject, n int) {
		for i := range n {
			c.store(subject.Namespace(), auth.Key{Subject: subject, Target: auth.Target{Image: fmt.Sprint(i)}})
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range min(n, maxFlights) {
			options := auth.FetchOptions{Tenant: subject.Namespace()}
			if _, err := c.join(b.Context(), nil, auth.Key{Subject: subject, Target: auth.Target{STSRegion: fmt.Sprint(i)}}, nil, options, hang); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i := range others / maxFlights {
		fill(subjectOf(fmt.Sprintf("other-%d", i)), maxFlights)
	}
	for _, own := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("own=%d", own), func(b *testing.B) {
			round := 0
			for b.Loop() {
				b.StopTimer()
				round++
				// The subject is new, because flights of the last round are still in progress.
				subject := subjectOf(fmt.Sprintf("own-%d-%d", own, round))
				fill(subject, own)
				b.StartTimer()
				c.Invalidate(subject)
			}
		})
	}
}
