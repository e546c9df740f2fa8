package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth/share"
)

// Limits bound what the children of a [Pool] may cost.
type Limits struct {
	// Children is the maximum number of children at once.
	Children int
	// Memory is the private memory that one child may use, in bytes. All children together use at
	// most Children times Memory. Go's runtime needs 80 MiB of it.
	Memory int64
	// Time is how long one request may take, from the start of its work. A child that takes longer
	// is killed.
	Time time.Duration
	// Request and Answer are the maximum lengths of a request and of an answer, in bytes.
	Request, Answer int64
	// Requests is how many requests of its tenant one child serves at most. A child whose requests
	// took longer than Time together serves no other.
	Requests int
	// Idle is how long a child waits for the next request of its tenant.
	Idle time.Duration
}

// errStopping is the cause of requests that fail after Close.
var errStopping = errors.New("the program is stopping")

// maxWaiting bounds the requests that wait for a child, of all tenants and of one tenant.
const (
	maxWaiting          = 10_000
	maxWaitingPerTenant = 1_000
)

// Request is the work for a child.
type Request struct {
	// Tenant is the tenant that the request is for. Tenants share the children fairly, as
	// share.Places says.
	Tenant string
	// Function is the name of the function that answers the request, without a zero byte; see
	// [Functions].
	Function string
	// Parts are the content. The child gets the parts one after the other, as one piece.
	Parts [][]byte
	// Alone says that the request gets a new child, which serves no other request. This is for
	// requests whose content no other request may ever see.
	Alone bool
}

// Pool starts children and shares them among tenants. All methods are safe for concurrent use.
type Pool struct {
	limits  Limits
	program string
	places  *share.Places

	mu      sync.Mutex // guards the fields below; never held during I/O
	idle    []*child   // the child that has been idle longest is first
	running int        // number of children, also the idle ones and those that are being ended
	// childEnded is signalled when a child has ended; it uses mu.
	childEnded *sync.Cond
	closed     bool
}

// New returns a pool of children. The program is the path of the file to start, usually
// [os.Executable] of this process. Its main function must call [Serve] if [IsChild] says so.
func New(program string, limits Limits) *Pool {
	keepInheritedFiles()
	p := &Pool{
		limits: limits, program: program,
		places: share.New(share.Limits{Places: limits.Children, Waiting: maxWaiting, WaitingPerTenant: maxWaitingPerTenant}),
	}
	p.childEnded = sync.NewCond(&p.mu)
	return p
}

// Do sends a request to a child, and calls use with the child's answer. Do waits for its turn if all
// children are busy. The turn lasts until use returns, so that only a few answers are used at once.
//
// An error is a [*share.NoPlaceError] if the request got no turn. The error is an [*Error] if the
// request is too long or the child did not answer. Otherwise the error is the cause of ctx or the
// error of use. After an error, the child is ended.
func (p *Pool) Do(ctx context.Context, request Request, use func(answer []byte) error) error {
	length := int64(len(request.Function) + 1)
	for _, part := range request.Parts {
		length += int64(len(part))
	}
	if length > p.limits.Request {
		return &Error{Reason: ReasonSize, Err: fmt.Errorf("the input is larger than %d bytes", p.limits.Request), Fix: smaller}
	}
	if err := p.places.Enter(ctx, request.Tenant); err != nil {
		return err
	}
	defer p.places.Leave(request.Tenant)
	for {
		c, err := p.child(request)
		if err != nil {
			return err
		}
		used := c.served > 0
		err = p.serve(ctx, c, request, use)
		failure, ok := errors.AsType[*Error](err)
		if err == nil || !used || context.Cause(ctx) != nil || ok && failure.Reason == ReasonTime {
			return err
		}
		// An earlier request may have left the child in a bad state. A new child decides. But a
		// request that takes too long is not repeated, since other tenants wait for the turn.
		request.Alone = true
	}
}

// serve has a child answer a request, and calls use with the answer. Then serve keeps or ends the
// child. After an error, and also after a panic of use, serve ends the child.
func (p *Pool) serve(ctx context.Context, c *child, request Request, use func(answer []byte) error) error {
	succeeded := false
	defer func() {
		if !succeeded {
			p.end(c)
		}
	}()
	answer, err := c.do(ctx, append([][]byte{[]byte(request.Function + "\x00")}, request.Parts...), p.limits)
	if err == nil {
		err = use(answer)
	}
	if err == nil {
		succeeded = true
		p.release(c, request.Alone)
	}
	return err
}

// child returns an idle child of the tenant, or a new child. If there is no room for a new child,
// the child that has been idle longest is ended first.
func (p *Pool) child(request Request) (*child, error) {
	c, replaced, err := p.reserve(request)
	if c != nil || err != nil {
		return c, err
	}
	if replaced != nil {
		replaced.kill()
	}
	c, err = start(p.program, request.Tenant, p.limits)
	if err != nil {
		p.countEnded()
	}
	return c, err
}

// reserve returns an idle child of the tenant, or counts a new child that the caller starts. A child
// that is replaced must be ended before the new child starts.
func (p *Pool) reserve(request Request) (idle, replaced *child, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.closed {
			return nil, nil, unavailable(errStopping)
		}
		i := slices.IndexFunc(p.idle, func(c *child) bool { return c.tenant == request.Tenant })
		if i >= 0 && !request.Alone {
			c := p.removeIdle(i)
			c.resume()
			return c, nil, nil
		}
		if p.running < p.limits.Children {
			p.running++
			return nil, nil, nil
		}
		if len(p.idle) > 0 {
			return nil, p.removeIdle(0), nil
		}
		// The caller has one of the places, so a child is just being ended.
		p.childEnded.Wait()
	}
}

// countEnded counts a child that has ended.
func (p *Pool) countEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	p.childEnded.Broadcast()
}

// removeIdle removes an idle child from the list. The caller holds the lock.
func (p *Pool) removeIdle(i int) *child {
	c := p.idle[i]
	c.idleTimer.Stop()
	p.idle = slices.Delete(p.idle, i, i+1)
	return c
}

// release keeps a child for the next request of its tenant, or ends it.
func (p *Pool) release(c *child, alone bool) {
	c.served++
	p.mu.Lock()
	keep := !p.closed && !alone && c.served < p.limits.Requests && c.worked < p.limits.Time
	if keep {
		c.pause()
		c.idleTimer = time.AfterFunc(p.limits.Idle, func() { p.expire(c) })
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		p.end(c)
	}
}

// expire ends a child that has been idle for too long.
func (p *Pool) expire(c *child) {
	p.mu.Lock()
	i := slices.Index(p.idle, c)
	if i >= 0 {
		p.removeIdle(i)
	}
	p.mu.Unlock()
	if i >= 0 { // otherwise the child serves a request again, or has been ended
		p.end(c)
	}
}

// end ends a child that is not idle.
func (p *Pool) end(c *child) {
	c.kill()
	p.countEnded()
}

// Check sends an empty request to a new child. An error says why no child can work on this machine.
// A program calls Check when it starts.
func (p *Pool) Check(ctx context.Context) error {
	return p.Do(ctx, Request{Alone: true}, func([]byte) error { return nil })
}

// Close ends all idle children, and makes the others end after their request. Do fails from now on.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	idle := slices.Clone(p.idle)
	for range idle {
		p.removeIdle(0)
	}
	p.childEnded.Broadcast()
	p.mu.Unlock()
	for _, c := range idle {
		p.end(c)
	}
	p.places.Dismiss(errStopping)
}

func unavailable(err error) *Error {
	return &Error{
		Reason: ReasonUnavailable, Err: fmt.Errorf("no confined process can be started: %w", err),
		Fix: "ask the administrator: the program's log says more",
	}
}
