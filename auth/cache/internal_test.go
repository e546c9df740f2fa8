package cache

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

type pass struct{}

func (pass) GetDuration() time.Duration { return time.Hour }

// Namespaces come and go: none may leave anything behind.
func TestNothingIsKeptOfATenantWithNothing(t *testing.T) {
	c := New(Options{MaxSize: 10})
	for i := range 5 {
		subject, err := auth.ServiceAccount(fmt.Sprintf("tenant-%d", i), "sa")
		if err != nil {
			t.Fatal(err)
		}
		// Memory knew nothing of the account, so that the token is of another key and is not kept.
		_, err = c.Fetch(t.Context(), auth.Key{Subject: subject}, auth.FetchOptions{}, func(context.Context) (auth.Fetched, error) {
			return auth.Fetched{Key: auth.Key{Subject: subject, UID: "uid"}, Token: pass{}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tenants.byName) != 0 || len(c.tenants.bySize) != 0 || len(c.flights) != 0 || len(c.subjects) != 0 {
		t.Errorf("%d tenants, %d in the heap, %d flights, %d subjects; want none",
			len(c.tenants.byName), len(c.tenants.bySize), len(c.flights), len(c.subjects))
	}
}

// One account can have as many keys as there are regions to name. To remove them all must not take the square of that.
func TestSweepOfOneSubjectIsLinear(t *testing.T) {
	subject, err := auth.ServiceAccount("a", "sa")
	if err != nil {
		t.Fatal(err)
	}
	sweep := func(keys int) time.Duration {
		c := New(Options{MaxSize: keys})
		now := time.Now()
		c.mu.Lock()
		for i := range keys {
			c.put(nil, c.issued(auth.Fetched{Key: auth.Key{Subject: subject, Image: fmt.Sprint(i)}, Token: pass{}}, now))
		}
		c.mu.Unlock()
		start := time.Now()
		c.sweep(now.Add(2 * time.Hour))
		took := time.Since(start)
		if len(c.subjects) != 0 || c.tenants.size != 0 || c.Len() != 0 {
			t.Errorf("%d subjects and %d entries are left", len(c.subjects), c.tenants.size)
		}
		return took
	}
	// 32 times as much takes about 32 times as long, and not 1024 times. The best of some, since machines that test are busy.
	few, many := time.Hour, time.Hour
	for range 3 {
		few, many = min(few, sweep(2000)), min(many, sweep(64_000))
	}
	if many > 400*few {
		t.Errorf("2000 entries took %s, 64000 took %s", few, many)
	}
}

// BenchmarkInvalidate: what a change of one account costs everybody who waits for the lock, while other tenants have 10,000 tokens and
// 10,000 exchanges under way.
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
		if err != nil {
			b.Fatal(err)
		}
		return subject
	}
	fill := func(subject auth.Subject, n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range n {
			c.put(nil, c.issued(auth.Fetched{Key: auth.Key{Subject: subject, Image: fmt.Sprint(i)}, Token: pass{}}, time.Now()))
			if i < maxFlightsPerTenant {
				if _, err := c.join(b.Context(), auth.Key{Subject: subject, STSRegion: fmt.Sprint(i)}, nil, time.Now(), false, hang); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for i := range others / maxFlightsPerTenant {
		fill(subjectOf(fmt.Sprintf("other-%d", i)), maxFlightsPerTenant)
	}
	for _, own := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("own=%d", own), func(b *testing.B) {
			round := 0
			for b.Loop() {
				b.StopTimer()
				round++
				subject := subjectOf(fmt.Sprintf("own-%d-%d", own, round)) // its flights are still under way in the next round
				fill(subject, own)
				b.StartTimer()
				c.Invalidate(subject)
			}
		})
	}
}
