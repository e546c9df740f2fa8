// Package reserve divides a program's memory and processors among all fetches of the program.
//
// A tenant's server can first send much data, and then make the fetch last for many minutes. With
// many objects, such fetches could use more memory than the program has. So each fetch has an
// account. Code that stores a server's data in memory takes memory from the pool with [Take], and
// gives the memory back with [Free].
//
// If the memory is used up, a fetch must end. Usually, the tenant that uses most memory loses its
// largest fetch. But the fetch that asks for more memory ends if its own tenant would then use
// most. So beside nine other tenants, a tenant can always use a tenth of the memory.
//
// Large answers also take long to decode. If many fetches decoded at once, the fetches of other
// tenants would get little time of the processors. So few fetches decode at once, and the tenants
// take turns; see [Compute].
package reserve

import (
	"context"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/lanyard-dev/lanyard/auth/share"
)

// ErrEnded is the cause with which a [Pool] ends a fetch.
var ErrEnded = errors.New("the memory for data of servers is used up, and no namespace uses more of it")

// withoutLimit is the memory of a pool if the program has no memory limit (GOMEMLIMIT), in bytes.
const withoutLimit = 512 << 20

// Pool is what all fetches of a program share. The zero value has half of the memory that the
// program may use (GOMEMLIMIT), or 512 MiB without such a limit. A Pool must not be copied after
// its first use.
type Pool struct {
	once  sync.Once     // sets size and turns
	size  int64         // bytes of the whole memory
	turns *share.Places // the fetches that compute

	mu     sync.Mutex
	used   int64 // bytes that all accounts have taken
	ending int64 // the part of used that belongs to fetches that were ended
	open   map[string]map[*account]struct{}
	freed  chan struct{} // closed when memory becomes free; nil if nobody waits for memory
}

// New returns a pool with the given memory in bytes.
func New(memory int64) *Pool { return &Pool{size: memory} }

func (p *Pool) prepare() {
	if p.size == 0 {
		p.size = withoutLimit
		if most := debug.SetMemoryLimit(-1); most < math.MaxInt64 { // a negative limit only reads the limit
			p.size = most / 2
		}
	}
	// The other half of the processors is for fetches that do not compute, and for all other work.
	// A program has far fewer fetches than may wait.
	p.turns = share.New(share.Limits{Places: max(1, runtime.GOMAXPROCS(0)/2), Waiting: 10_000, WaitingPerTenant: 10_000})
}

// account is the share of one fetch.
type account struct {
	pool   *Pool
	tenant string
	end    context.CancelCauseFunc
	used   int64 // bytes
	ended  bool  // the pool has ended the fetch, or the account is closed

	computes atomic.Bool // the fetch has a turn
}

type key struct{}

// Open opens an account for a fetch of a tenant. The fetch must use the returned context. To end
// the fetch, the pool calls end with [ErrEnded]: end must cancel ctx. The caller must call closed
// after the fetch. The function closed gives all memory of the account back.
func (p *Pool) Open(ctx context.Context, tenant string, end context.CancelCauseFunc) (opened context.Context, closed func()) {
	p.once.Do(p.prepare)
	a := &account{pool: p, tenant: tenant, end: end}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[string]map[*account]struct{}{}
	}
	if p.open[tenant] == nil {
		p.open[tenant] = map[*account]struct{}{}
	}
	p.open[tenant][a] = struct{}{}
	return context.WithValue(ctx, key{}, a), a.close
}

// close gives all memory and the turn of the account back, and forgets the account.
func (a *account) close() {
	p := a.pool
	a.rest()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(a, a.used)
	a.ended = true // after close, the fetch gets no more memory
	delete(p.open[a.tenant], a)
	if len(p.open[a.tenant]) == 0 {
		delete(p.open, a.tenant)
	}
}

// Take takes n bytes for the fetch whose context is ctx. If the memory is used up, Take waits until
// other fetches have given memory back. The error is the cause of the end of ctx. If ctx belongs to
// no account, for example in a command, Take returns nil.
func Take(ctx context.Context, n int64) error {
	a, ok := ctx.Value(key{}).(*account)
	if !ok {
		return nil
	}
	p := a.pool
	for {
		freed := p.take(a, n)
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Free gives n bytes of an earlier [Take] back.
func Free(ctx context.Context, n int64) {
	if a, ok := ctx.Value(key{}).(*account); ok {
		a.pool.mu.Lock()
		defer a.pool.mu.Unlock()
		a.pool.free(a, min(n, a.used)) // less than n if close was called first
	}
}

// Compute waits until the fetch whose context is ctx has a turn to compute, for example to decode a
// large answer. The caller must call [Rest] afterwards. A turn must take less than a second, and
// must not wait for anything. The error means that ctx has ended. If ctx belongs to no account,
// Compute returns nil at once.
func Compute(ctx context.Context) error {
	a, ok := ctx.Value(key{}).(*account)
	if !ok {
		return nil
	}
	a.rest()
	if err := a.pool.turns.Enter(ctx, a.tenant); err != nil {
		return err
	}
	a.computes.Store(true)
	return nil
}

// Large is the cost from which a document takes some milliseconds to decode, in bytes. The decoder
// of such a document should wait for a turn; see [Cost] and [Compute].
const Large = 1 << 20

// Cost estimates how much memory an XML or JSON document needs, in bytes: for its text with copies,
// and for its decoded values. The arguments are the number of bytes of the text, and the number of
// the values: elements, attributes, or members.
func Cost(bytes, values int) int64 { return 4*int64(bytes) + 300*int64(values) }

// Values returns the number of values in a JSON text, or a higher number. The text need not be valid.
func Values(text []byte) (n int) {
	inString, escaped := false, false
	for _, b := range text {
		switch {
		case escaped:
			escaped = false
		case inString && b == '\\':
			escaped = true
		case b == '"':
			inString = !inString
		case !inString && (b == ',' || b == '{' || b == '['):
			n++
		}
	}
	return n
}

// Rest ends the turn of [Compute]. If the fetch has no turn, Rest does nothing.
func Rest(ctx context.Context) {
	if a, ok := ctx.Value(key{}).(*account); ok {
		a.rest()
	}
}

func (a *account) rest() {
	if a.computes.CompareAndSwap(true, false) {
		a.pool.turns.Leave(a.tenant)
	}
}

// take takes n bytes for an account and returns nil. Without enough memory, take ends as many
// fetches as necessary. The result is then a channel that is closed when memory becomes free.
func (p *Pool) take(a *account, n int64) (freed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A tenant may have chosen n. So n is only subtracted: a sum could overflow.
	for p.used-p.ending > p.size-n && !a.ended {
		p.endOne(a, n)
	}
	if p.used <= p.size-n && !a.ended {
		p.used += n
		a.used += n
		return nil
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return p.freed
}

// free gives n bytes of an account back.
func (p *Pool) free(a *account, n int64) {
	a.used -= n
	p.used -= n
	if a.ended {
		p.ending -= n
	}
	if n > 0 && p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// endOne ends one fetch, so that the account "asking" can have n more bytes. The tenant with most
// memory loses its largest fetch. The n bytes count for the tenant that asks. If this tenant would
// have most memory, the fetch that asks ends. If several tenants have equally much, the tenant that
// asks loses no fetch.
func (p *Pool) endOne(asking *account, n int64) {
	var largest *account
	most := int64(0)
	for tenant, accounts := range p.open {
		if tenant == asking.tenant {
			continue
		}
		if sum, one := total(accounts); one != nil && sum > most {
			most, largest = sum, one
		}
	}
	if own, _ := total(p.open[asking.tenant]); largest == nil || own > most-n {
		largest = asking
	}
	largest.ended = true
	p.ending += largest.used
	largest.end(ErrEnded)
}

// total returns the bytes of all accounts whose fetch was not ended, and the largest such account.
// If no such account uses memory, total returns zero and nil.
func total(accounts map[*account]struct{}) (sum int64, largest *account) {
	for a := range accounts {
		if a.ended || a.used == 0 {
			continue
		}
		sum += a.used
		if largest == nil || a.used > largest.used {
			largest = a
		}
	}
	return sum, largest
}
