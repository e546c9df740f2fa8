// Package share divides places among tenants. A place stands for something that a program has few
// of, such as a concurrent call to a cloud, or a running computation.
//
//   - A tenant uses at most half of the places that other tenants leave free, and always may use
//     one (see [Room]). So one tenant cannot take all places.
//   - A caller without a place waits. Each free place goes to the next waiting tenant in turn
//     (round robin). Within a tenant, the caller that has waited longest is first. So a tenant
//     never waits behind another tenant's queue.
//   - The number of waiting callers is bounded, for each tenant and for all tenants. If all waiting
//     room is taken, a new caller displaces the newest caller of the tenant with the most waiting
//     callers. So a tenant with a long queue cannot keep other tenants out.
//
// A person who controls a hundred tenants can take every place. A caller of another tenant then
// waits until each of these tenants has had one turn. So hold a place only for a short time, and
// bound this time.
package share

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrFull is the reason of a [NoPlaceError] if too many callers wait.
var ErrFull = errors.New("too many callers wait")

// Room returns how many more places a tenant may take, at most. The arguments are the number of
// all places, of those in use, and of those that the tenant itself uses. A tenant may use half of
// the places that no other tenant uses, rounded down, but always one. Of ten places, the first
// tenant may use five, the second two, and three more tenants one each. The result is negative if
// the tenant uses more than that. Room does not check that a place is free.
func Room(places, used, own int) int {
	return max(1, (places-(used-own))/2) - own
}

// Limits are the limits of [Places]. All are required.
type Limits struct {
	// Places is the number of places.
	Places int
	// Waiting is the maximum number of waiting callers of all tenants.
	Waiting int
	// WaitingPerTenant is the maximum number of waiting callers of one tenant.
	WaitingPerTenant int
}

// Places are places that tenants share. All methods are safe for concurrent use. An Enter that need
// not wait does not allocate, apart from the growth of a map.
type Places struct {
	mu      sync.Mutex // guards all fields below; never held while a caller waits
	limits  Limits
	used    int               // number of places in use
	waiting int               // number of waiting callers
	users   map[string]int    // number of places that each tenant uses, if any
	queues  map[string]*queue // the queue of each tenant with waiting callers
	turns   []*queue          // the same queues, in the order of their turns
}

// queue has the waiting callers of one tenant, in the order of their arrival.
type queue struct {
	tenant  string
	callers []*caller
}

// caller is one waiting caller.
type caller struct {
	done chan struct{} // closed when the wait ends
	err  error         // nil if the caller got a place; set before done is closed
}

// New returns places that nobody uses.
func New(limits Limits) *Places {
	return &Places{limits: limits, users: map[string]int{}, queues: map[string]*queue{}}
}

// NoPlaceError is the error of [Places.Enter]: the caller got no place. It contains nothing about
// other tenants, so the tenant may see it.
type NoPlaceError struct {
	// Tenant is the caller's tenant.
	Tenant string
	// Using is the number of places that the tenant uses.
	Using int
	// Waiting is the number of other callers of the tenant that wait.
	Waiting int
	// Err is the reason: [ErrFull], the error of [Places.Dismiss], or [context.Cause] of the
	// caller's context.
	Err error
}

// Error implements error.
func (e *NoPlaceError) Error() string {
	return fmt.Sprintf("%s uses %d places, and %d of its calls wait: %v", e.Tenant, e.Using, e.Waiting, e.Err)
}

// Unwrap returns the reason.
func (e *NoPlaceError) Unwrap() error { return e.Err }

// Enter takes a place for the tenant. If the tenant may not have a place yet, Enter waits until it
// may, or until ctx ends. If err is nil, the caller must call Leave afterwards with the same
// tenant. Otherwise, err is a [*NoPlaceError].
func (p *Places) Enter(ctx context.Context, tenant string) error {
	c, err := p.join(tenant)
	if c == nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return p.giveUp(tenant, c, context.Cause(ctx))
	}
}

// Leave frees a place of the tenant, for the next caller. It panics if the tenant uses no place.
func (p *Places) Leave(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(tenant)
}

// Resize sets the number of places. If it falls below the number of places in use, nobody loses a
// place, but nobody enters until enough callers have left.
func (p *Places) Resize(places int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits.Places = places
	p.admit()
}

// Dismiss ends the wait of all waiting callers. Their Enter returns a [*NoPlaceError] with the
// given reason.
func (p *Places) Dismiss(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range slices.Clone(p.turns) {
		for len(q.callers) > 0 {
			p.dismissNewest(q, reason)
		}
	}
}

// join takes a place for the tenant or, if the tenant may not have one yet, adds a caller to the
// tenant's queue. The returned caller is nil if there is no need to wait.
func (p *Places) join(tenant string) (*caller, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mayEnter(tenant) {
		p.enter(tenant)
		return nil, nil //nolint:nilnil // there is neither a wait nor an error
	}
	q := p.queues[tenant]
	if q == nil {
		q = &queue{tenant: tenant}
	}
	if !p.makeRoom(q) {
		return nil, p.refusal(tenant, len(q.callers), ErrFull)
	}
	if len(q.callers) == 0 {
		p.queues[tenant] = q
		p.turns = append(p.turns, q)
	}
	c := &caller{done: make(chan struct{})}
	q.callers = append(q.callers, c)
	p.waiting++
	return c, nil
}

// mayEnter reports whether a place is free, and the tenant may use it.
func (p *Places) mayEnter(tenant string) bool {
	return p.used < p.limits.Places && Room(p.limits.Places, p.used, p.users[tenant]) > 0
}

func (p *Places) enter(tenant string) {
	p.users[tenant]++
	p.used++
}

func (p *Places) leave(tenant string) {
	switch p.users[tenant] {
	case 0:
		panic("share: Leave without Enter")
	case 1:
		delete(p.users, tenant)
	default:
		p.users[tenant]--
	}
	p.used--
	p.admit()
}

// admit gives free places to waiting callers. The next tenant in turn that may have a place gets
// one, and then has its next turn after all others.
func (p *Places) admit() {
	for p.used < p.limits.Places {
		i := slices.IndexFunc(p.turns, func(q *queue) bool { return p.mayEnter(q.tenant) })
		if i < 0 {
			return
		}
		q := p.turns[i]
		p.turns = append(slices.Delete(p.turns, i, i+1), q)
		p.enter(q.tenant)
		p.end(q, 0, nil)
	}
}

// makeRoom reports whether one more caller may wait in q. If all waiting room is taken, makeRoom
// displaces the newest caller of the longest queue. It does not do so if q, with the new caller,
// would then be longer than the other queue.
func (p *Places) makeRoom(q *queue) bool {
	if len(q.callers) >= p.limits.WaitingPerTenant {
		return false
	}
	if p.waiting < p.limits.Waiting {
		return true
	}
	if len(p.turns) == 0 {
		return false
	}
	longest := slices.MaxFunc(p.turns, func(a, b *queue) int { return len(a.callers) - len(b.callers) })
	if len(longest.callers) < len(q.callers)+2 {
		return false
	}
	p.dismissNewest(longest, ErrFull)
	return true
}

// dismissNewest ends the wait of the newest caller in q.
func (p *Places) dismissNewest(q *queue, reason error) {
	last := len(q.callers) - 1
	p.end(q, last, p.refusal(q.tenant, last, reason))
}

// end ends the wait of a caller in q, given by its index. The error is nil if the caller has got a
// place.
func (p *Places) end(q *queue, index int, err error) {
	c := q.callers[index]
	c.err = err
	close(c.done)
	p.waiting--
	if q.callers = slices.Delete(q.callers, index, index+1); len(q.callers) > 0 {
		return
	}
	delete(p.queues, q.tenant)
	i := slices.Index(p.turns, q)
	p.turns = slices.Delete(p.turns, i, i+1)
}

// giveUp ends the wait of a caller whose context has ended, and returns the caller's error. If the
// caller got a place at the same moment, giveUp frees the place again.
func (p *Places) giveUp(tenant string, c *caller, reason error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-c.done:
		if c.err == nil {
			p.leave(tenant)
		}
	default:
		q := p.queues[tenant]
		p.end(q, slices.Index(q.callers, c), nil)
	}
	waiting := 0
	if q := p.queues[tenant]; q != nil {
		waiting = len(q.callers)
	}
	return p.refusal(tenant, waiting, reason)
}

// refusal returns the error for a caller without a place. The argument waiting is the number of
// other waiting callers of the tenant.
func (p *Places) refusal(tenant string, waiting int, reason error) *NoPlaceError {
	return &NoPlaceError{Tenant: tenant, Using: p.users[tenant], Waiting: waiting, Err: reason}
}
