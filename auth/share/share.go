// Package share divides a limited number of places among tenants. A place is the right to do one
// thing, for example to make a call to a cloud. The program can do this only a few times at once.
//
//   - A tenant may use at most half of the places that no other tenant uses. But each tenant may
//     use at least one place (see [Room]). So one tenant cannot use all places if there are
//     several.
//   - If a caller gets no place at once, the caller waits in its tenant's queue. The queues get the
//     free places in turn (round robin). In each queue, the caller that has waited longest is
//     first. So a tenant never waits for another tenant's whole queue.
//   - The number of waiting callers is limited, for each tenant and for all tenants together. At
//     the limit of its tenant, a new caller gets [ErrFull]. At the limit for all tenants, the
//     newest caller of the longest queue gets ErrFull. The new caller then waits instead. But the
//     new caller gets ErrFull if its queue would become longer than the shortened queue. So a
//     tenant with a long queue cannot prevent other tenants from waiting.
//
// Many tenants together can use all places, for example a hundred tenants of one person. Before a
// waiting caller of another tenant, each of these tenants may get one more place. So each caller
// must free its place after a short, limited time.
package share

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrFull is the reason of a [NoPlaceError] if the number of waiting callers is at a limit.
var ErrFull = errors.New("too many callers wait")

// Room returns how many more places a tenant may use, at most. The arguments are the number of all
// places, of all places in use, and of the places that the tenant itself uses. The tenant's share
// is half of the places that no other tenant uses, rounded down, but at least one place. For
// example, five tenants come one after the other, and use their whole shares of ten places. They
// use five, two, one, one and one place. The result is negative if the tenant uses more places than
// its share. Room does not check that a place is free.
func Room(places, used, own int) int {
	return max(1, (places-(used-own))/2) - own
}

// Limits are the limits of [Places]. The value 0 does not mean "no limit": if Waiting is 0, for
// example, no caller may wait.
type Limits struct {
	// Places is the number of places that all tenants share.
	Places int
	// Waiting is the maximum number of waiting callers of all tenants together.
	Waiting int
	// WaitingPerTenant is the maximum number of waiting callers of one tenant.
	WaitingPerTenant int
}

// Places are places that tenants share (see the package comment). All methods are safe for
// concurrent use. If a caller gets a place at once, Enter usually allocates no memory. Only a
// growing map of tenants needs memory.
type Places struct {
	mu      sync.Mutex // guards all fields below; never held while a caller waits
	limits  Limits
	used    int               // number of places in use
	waiting int               // number of waiting callers
	users   map[string]int    // number of places that each tenant uses, if any
	queues  map[string]*queue // the queue of each tenant with waiting callers
	turns   []*queue          // the same queues, in the order in which they get free places
}

// queue has the waiting callers of one tenant, in the order of their arrival.
type queue struct {
	tenant  string
	callers []*caller
}

// caller is one waiting caller.
type caller struct {
	done chan struct{} // closed when the wait ends
	err  error         // the result of Enter, nil if the caller got a place; set before done is closed
}

// New returns places with the given limits. No tenant uses a place yet.
func New(limits Limits) *Places {
	return &Places{limits: limits, users: map[string]int{}, queues: map[string]*queue{}}
}

// NoPlaceError is the error of [Places.Enter] for a caller that got no place. The error contains
// nothing about other tenants, so the caller's tenant may see the error.
type NoPlaceError struct {
	// Tenant is the caller's tenant.
	Tenant string
	// Using is the number of places that the tenant uses.
	Using int
	// Waiting is the number of the tenant's other callers that wait.
	Waiting int
	// Err says why the caller got no place. Err is [ErrFull], the reason that was passed to
	// [Places.Dismiss], or [context.Cause] of the caller's context.
	Err error
}

// Error implements error.
func (e *NoPlaceError) Error() string {
	return fmt.Sprintf("%s uses %d places, and %d of its calls wait: %v", e.Tenant, e.Using, e.Waiting, e.Err)
}

// Unwrap returns the reason.
func (e *NoPlaceError) Unwrap() error { return e.Err }

// Enter gets a place for a caller of the tenant. If the tenant may not use one more place yet,
// Enter waits. If the error is nil, the caller has a place. The caller must then free the place
// with [Places.Leave] for the same tenant. Any other error is a [*NoPlaceError]: ctx has ended, the
// number of waiting callers is at a limit, or [Places.Dismiss] was called.
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

// Leave frees a place of the tenant, so that the next caller may use the place. Leave panics if the
// tenant uses no place.
func (p *Places) Leave(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(tenant)
}

// Resize sets the number of places. The new number may be smaller than the number of places in use.
// Then no caller loses its place, but new callers wait until enough callers have left.
func (p *Places) Resize(places int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits.Places = places
	p.admit()
}

// Dismiss ends the wait of all waiting callers. For each of these callers, Enter returns a
// [*NoPlaceError] with the given reason.
func (p *Places) Dismiss(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range slices.Clone(p.turns) {
		for len(q.callers) > 0 {
			p.dismissNewest(q, reason)
		}
	}
}

// join gets a place for the tenant, or adds a caller to the tenant's queue. If the tenant got a
// place, both results are nil. If join added a caller, join returns this caller, which must wait.
// If no more callers may wait, join returns a [*NoPlaceError].
func (p *Places) join(tenant string) (*caller, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mayEnter(tenant) {
		p.enter(tenant)
		return nil, nil //nolint:nilnil // the tenant got a place, so there is neither a waiting caller nor an error
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

// mayEnter reports whether a place is free, and the tenant may use one more place.
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

// admit gives free places to waiting callers. Each free place goes to the first queue in p.turns
// whose tenant may use one more place. This queue then moves to the end of p.turns.
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

// makeRoom reports whether one more caller may wait in q. The result is false at the limit for q's
// tenant. At the limit for all tenants, makeRoom removes the newest caller of the longest queue.
// But if q would become longer than the shortened queue, makeRoom only returns false.
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

// dismissNewest removes the newest caller from q. For this caller, Enter returns a [*NoPlaceError]
// with the given reason.
func (p *Places) dismissNewest(q *queue, reason error) {
	last := len(q.callers) - 1
	p.end(q, last, p.refusal(q.tenant, last, reason))
}

// end removes the caller with the given index from q, and ends the wait of this caller. If Enter
// still waits for this caller, Enter returns err. The argument err is nil if the caller has got a
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

// giveUp ends the wait of a caller whose context has ended, and returns the error for this caller.
// If the caller got a place at the same moment, giveUp frees the place again.
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

// refusal returns the error for a caller that got no place. The argument waiting is the number of
// the tenant's other callers that wait.
func (p *Places) refusal(tenant string, waiting int, reason error) *NoPlaceError {
	return &NoPlaceError{Tenant: tenant, Using: p.users[tenant], Waiting: waiting, Err: reason}
}
