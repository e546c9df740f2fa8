// Package reserve limits the memory that all fetches of a program use at once.
//
// A tenant's server can first send much data, and then make the fetch last for many minutes. With
// many objects, such fetches could use more memory than the program has. So each fetch has an
// account. Code that stores a server's data in memory takes memory from the reserve with [Take], and
// gives the memory back with [Free].
//
// If the reserve is used up, a fetch must end. The tenant that uses most memory loses its largest
// fetch. So a tenant never loses a fetch while another tenant uses more memory.
package reserve

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"sync"
)

// ErrEnded is the cause with which a [Memory] ends a fetch.
var ErrEnded = errors.New("the memory for data of servers is used up, and no namespace uses more of it")

// withoutLimit is the size of a reserve if the program has no memory limit (GOMEMLIMIT), in bytes.
const withoutLimit = 512 << 20

// Memory is the memory that all fetches of a program share. The zero value has half of the memory
// that the program may use (GOMEMLIMIT), or 512 MiB without such a limit. A Memory must not be
// copied after its first use.
type Memory struct {
	mu     sync.Mutex
	size   int64 // bytes of the whole reserve; zero until the first use
	used   int64 // bytes that all accounts have taken
	ending int64 // the part of used that belongs to fetches that were ended
	open   map[string]map[*account]struct{}
	freed  chan struct{} // closed when memory becomes free; nil if nobody waits for memory
}

// New returns a reserve with the given size in bytes.
func New(size int64) *Memory { return &Memory{size: size} }

// account is the memory of one fetch.
type account struct {
	shared *Memory
	tenant string
	end    context.CancelCauseFunc
	used   int64 // bytes
	ended  bool  // the reserve has ended the fetch
}

type key struct{}

// Open opens an account for a fetch of a tenant. The fetch must use the returned context. To end
// the fetch, the reserve calls end with [ErrEnded]: end must cancel ctx. The caller must call closed
// after the fetch. The function closed gives all memory of the account back.
func (m *Memory) Open(ctx context.Context, tenant string, end context.CancelCauseFunc) (opened context.Context, closed func()) {
	a := &account{shared: m, tenant: tenant, end: end}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		m.open = map[string]map[*account]struct{}{}
	}
	if m.open[tenant] == nil {
		m.open[tenant] = map[*account]struct{}{}
	}
	m.open[tenant][a] = struct{}{}
	return context.WithValue(ctx, key{}, a), a.close
}

// close gives all memory of the account back, and forgets the account.
func (a *account) close() {
	m := a.shared
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free(a, a.used)
	delete(m.open[a.tenant], a)
	if len(m.open[a.tenant]) == 0 {
		delete(m.open, a.tenant)
	}
}

// Take takes n bytes for the fetch whose context is ctx. If the reserve is used up, Take waits until
// other fetches have given memory back. The error is the cause of the end of ctx. If ctx belongs to
// no account, for example in a command, Take returns nil.
func Take(ctx context.Context, n int64) error {
	a, ok := ctx.Value(key{}).(*account)
	if !ok {
		return nil
	}
	m := a.shared
	for {
		freed := m.take(a, n)
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
		a.shared.mu.Lock()
		defer a.shared.mu.Unlock()
		a.shared.free(a, min(n, a.used)) // less than n if close was called first
	}
}

// take takes n bytes for an account and returns nil. Without enough memory, take ends as many
// fetches as necessary. The result is then a channel that is closed when memory becomes free.
func (m *Memory) take(a *account, n int64) (freed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.size == 0 {
		m.size = withoutLimit
		if most := debug.SetMemoryLimit(-1); most < math.MaxInt64 { // a negative limit only reads the limit
			m.size = most / 2
		}
	}
	for m.used-m.ending+n > m.size && !a.ended {
		m.endOne(a, n)
	}
	if m.used+n <= m.size && !a.ended {
		m.used += n
		a.used += n
		return nil
	}
	if m.freed == nil {
		m.freed = make(chan struct{})
	}
	return m.freed
}

// free gives n bytes of an account back.
func (m *Memory) free(a *account, n int64) {
	a.used -= n
	m.used -= n
	if a.ended {
		m.ending -= n
	}
	if n > 0 && m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}

// endOne ends one fetch, so that the account "asking" can have n more bytes. The tenant with most
// memory loses its largest fetch. The n bytes count for the tenant that asks. If this tenant would
// have most memory, the fetch that asks ends. If several tenants have equally much, the tenant that
// asks loses no fetch.
func (m *Memory) endOne(asking *account, n int64) {
	var largest *account
	most := int64(0)
	for tenant, accounts := range m.open {
		if tenant == asking.tenant {
			continue
		}
		if sum, one := total(accounts); one != nil && sum > most {
			most, largest = sum, one
		}
	}
	if own, _ := total(m.open[asking.tenant]); largest == nil || own+n > most {
		largest = asking
	}
	largest.ended = true
	m.ending += largest.used
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
