package reserve_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// fetch is a fetch with an account.
type fetch struct {
	ctx    context.Context //nolint:containedctx // the context of the fetch
	closed func()
}

// open opens an account of a tenant, and takes memory.
func open(t *testing.T, b *reserve.Pool, tenant string, bytes int64) fetch {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	ctx, closed := b.Open(ctx, tenant, end)
	if bytes > 0 {
		must.Succeed(t, reserve.Take(ctx, bytes))
	}
	return fetch{ctx, closed}
}

// ended reports whether the pool has ended the fetch.
func (f fetch) ended() bool { return errors.Is(context.Cause(f.ctx), reserve.ErrEnded) }

// TestLargestTenantLosesItsLargestFetch checks which fetch ends if the memory is used up. The
// memory goes to another tenant after the fetch has ended.
func TestLargestTenantLosesItsLargestFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := reserve.New(100)
		small, large := open(t, b, "many", 30), open(t, b, "many", 31)
		other := open(t, b, "other", 35)
		honest := open(t, b, "honest", 0)
		got := make(chan error)
		go func() { got <- reserve.Take(honest.ctx, 20) }()
		synctest.Wait()
		if small.ended() || !large.ended() || other.ended() || honest.ended() {
			t.Error("not the largest fetch of the largest tenant was ended")
		}
		select {
		case err := <-got:
			t.Errorf("the memory is given away before it is free: %v", err)
		default:
		}
		large.closed()
		must.Succeed(t, <-got)
	})
}

// TestFetchOfTheLargestTenantEnds checks a tenant that would have most memory. Only the fetch that
// asks for memory ends.
func TestFetchOfTheLargestTenantEnds(t *testing.T) {
	b := reserve.New(100)
	own, other := open(t, b, "one", 40), open(t, b, "other", 45)
	asking := open(t, b, "one", 10)
	if err := reserve.Take(asking.ctx, 10); !errors.Is(err, reserve.ErrEnded) {
		t.Errorf("%v, want %v", err, reserve.ErrEnded)
	}
	if own.ended() || other.ended() {
		t.Error("another fetch was ended")
	}
	asking.closed()
	must.Succeed(t, reserve.Take(other.ctx, 15))
}

// TestEqualTenants checks a fetch whose tenant would have as much memory as another tenant. The
// other tenant loses its fetch.
func TestEqualTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := reserve.New(100)
		open(t, b, "third", 15)
		other, asking := open(t, b, "other", 45), open(t, b, "one", 35)
		go func() {
			<-other.ctx.Done()
			other.closed()
		}()
		must.Succeed(t, reserve.Take(asking.ctx, 10))
		if !other.ended() || asking.ended() {
			t.Error("the other tenant keeps its fetch")
		}
	})
}

// TestMoreThanTheReserve checks a fetch that needs more memory than the whole reserve.
func TestMoreThanTheReserve(t *testing.T) {
	b := reserve.New(100)
	f := open(t, b, "one", 0)
	if err := reserve.Take(f.ctx, 101); !errors.Is(err, reserve.ErrEnded) {
		t.Errorf("%v, want %v", err, reserve.ErrEnded)
	}
}

// TestEndlessFetch asserts that a fetch with the largest number ends, and that the sum does not
// overflow: otherwise the pool would have more memory afterwards.
func TestEndlessFetch(t *testing.T) {
	b := reserve.New(100)
	honest, endless := open(t, b, "honest", 60), open(t, b, "endless", 10)
	if err := reserve.Take(endless.ctx, math.MaxInt64); !errors.Is(err, reserve.ErrEnded) || !endless.ended() || honest.ended() {
		t.Errorf("%v, ended %v and %v", err, endless.ended(), honest.ended())
	}
	endless.closed()
	must.Succeed(t, reserve.Take(honest.ctx, 40))
	if err := reserve.Take(honest.ctx, 1); !errors.Is(err, reserve.ErrEnded) {
		t.Errorf("more than the pool has: %v", err)
	}
}

// TestFree checks that memory can be used again after Free, and after the end of a fetch.
func TestFree(t *testing.T) {
	b := reserve.New(100)
	f := open(t, b, "one", 100)
	reserve.Free(f.ctx, 100)
	next := open(t, b, "other", 100)
	next.closed()
	reserve.Free(next.ctx, 100) // the account is closed already
	must.Succeed(t, reserve.Take(f.ctx, 100))
}

// TestWithoutAccount checks code that runs without a pool, as in a command.
func TestWithoutAccount(t *testing.T) {
	must.Succeed(t, reserve.Take(t.Context(), 1<<62))
	reserve.Free(t.Context(), 1<<62)
	must.Succeed(t, reserve.Compute(t.Context()))
	reserve.Rest(t.Context())
}

// TestWaitEnds checks that Take stops to wait when the context of its fetch ends.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := reserve.New(100)
		open(t, b, "other", 100)
		ctx, cancel := context.WithCancelCause(t.Context())
		ctx, _ = b.Open(ctx, "one", cancel)
		got := make(chan error)
		go func() { got <- reserve.Take(ctx, 10) }()
		synctest.Wait()
		late := errors.New("too late")
		cancel(late)
		if err := <-got; !errors.Is(err, late) {
			t.Errorf("%v, want %v", err, late)
		}
	})
}

// TestTurns checks that few fetches compute at once, and that the tenants take turns. The end of a
// fetch ends its turn.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p reserve.Pool
		order := make(chan string, 100)
		compute := func(f fetch, name string) {
			if reserve.Compute(f.ctx) == nil {
				order <- name
			}
		}
		var first []fetch
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			f := open(t, &p, strconv.Itoa(len(first)), 0)
			compute(f, "first")
			<-order
			first = append(first, f)
		}
		var many []fetch
		for range 3 {
			f := open(t, &p, "many", 0)
			go compute(f, "many")
			many = append(many, f)
			synctest.Wait()
		}
		other := open(t, &p, "other", 0)
		go compute(other, "other")
		synctest.Wait()
		if len(order) > 0 {
			t.Fatalf("%s computes too, beside %d fetches", <-order, len(first))
		}
		first[0].closed()
		synctest.Wait()
		reserve.Rest(many[0].ctx)
		reserve.Rest(many[0].ctx) // the second call does nothing
		synctest.Wait()
		if a, b := <-order, <-order; a != "many" || b != "other" || len(order) > 0 {
			t.Errorf("first %s, then %s, and %d more; want many and other", a, b, len(order))
		}
		other.closed()
		for _, f := range many[1:] {
			synctest.Wait()
			<-order
			f.closed()
		}
	})
}

// TestNeverMoreThanThePool runs many fetches of several tenants at once. Together, the fetches
// never use more memory than the pool has. Afterwards, the whole memory is free.
func TestNeverMoreThanThePool(t *testing.T) {
	const size = 1000
	b := reserve.New(size)
	var used, done atomic.Int64
	var running sync.WaitGroup
	for i := range 40 {
		running.Go(func() {
			for range 200 {
				f := open(t, b, strconv.Itoa(i%7), 0)
				taken := int64(0)
				for range 5 {
					n := rand.Int64N(100)
					if reserve.Take(f.ctx, n) != nil {
						break
					}
					taken += n
					if used.Add(n) > size {
						t.Error("more memory is used than the pool has")
					}
				}
				if f.ctx.Err() == nil {
					done.Add(1)
				}
				used.Add(-taken)
				f.closed()
			}
		})
	}
	running.Wait()
	if done.Load() < 1000 {
		t.Errorf("only %d of 8000 fetches were not ended", done.Load())
	}
	open(t, b, "last", size)
}
