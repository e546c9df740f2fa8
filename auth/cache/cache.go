// Package cache keeps tokens for [auth.GetToken]: each is got once, refreshed before it ends, given to nobody else, and
// dropped the moment its subject changes.
//
// What it promises:
//
//   - A hit takes no lock, does no I/O and does not allocate. It never waits for another key.
//   - One exchange serves all callers who need the same key. No lock is held while it runs, and each caller waits no
//     longer than its own context. A tenant has at most 64 exchanges under way.
//   - From about 80 % of its life on, a token that is used is refreshed in the background. A token with less than its
//     floor left (the lesser of five minutes and a tenth of its life) is not given out without waiting for its refresh.
//   - While a refresh fails for a temporary reason the old token serves until it ends; when it is refused, the token goes.
//   - A failure is remembered, for one second at first and for up to a minute later, or longer if the other side asked for it.
//     [auth.WithRetryNow] shortens this to two seconds, but not a wait that the other side asked for.
//   - Capacity is fair: a tenant (namespace) that wants more room than there is loses its own tokens, or those of a tenant
//     that holds more than it does; never those of one that holds less.
//   - [Cache.Invalidate] drops all tokens of a subject, and does not keep those that were already on their way.
package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/lanyard-dev/lanyard/auth"
)

// Options configure a [Cache].
type Options struct {
	// MaxSize is how many tokens and remembered failures are kept. Zero keeps nothing: every call makes its exchange.
	MaxSize int
	// MaxDuration bounds how long any token is served, however long it lives. Default one hour.
	MaxDuration time.Duration
	// RefreshFraction is the part of a token's life after which use refreshes it, between 0 and 1. Default 0.8. Each token
	// gets its own, up to 0.05 away, so that tokens which were issued together are not refreshed together.
	RefreshFraction float64
	// ExchangeTimeout bounds one exchange, whatever deadlines its callers have. Default 30 s.
	ExchangeTimeout time.Duration
	// ObjectMetrics counts hits and misses for every involved object: as many series as objects.
	ObjectMetrics bool
	// Logger gets the warning that the capacity is too small, and exchanges that panicked. By default nothing is logged.
	Logger *slog.Logger
}

// Cache is an [auth.Cache], an [auth.Observer] and a Prometheus collector. Make it with [New].
type Cache struct {
	options Options
	metrics *metrics

	// tokens is what hits read, without a lock. Entries never change; a new state is a new entry.
	tokens *xsync.Map[auth.Key, *entry]

	mu       sync.Mutex // guards all writes to tokens and what follows; never held during I/O
	flights  map[auth.Key]*flight
	subjects map[auth.Subject]*entry // the first of each; entry.next leads on
	tenants  tenants
	warned   time.Time
}

// flight is one exchange under way.
type flight struct {
	key     auth.Key
	done    chan struct{} // closed when token and err are set
	token   auth.Token
	err     error
	dropped bool // the subject changed meanwhile: do not keep the token. Guarded by Cache.mu
}

var (
	_ auth.Cache    = (*Cache)(nil)
	_ auth.Observer = (*Cache)(nil)
)

// New makes an empty cache. Start [Cache.Run] in a goroutine, and subscribe [Cache.Invalidate] to the accounts.
func New(options Options) *Cache {
	if options.MaxDuration <= 0 {
		options.MaxDuration = time.Hour
	}
	if !(options.RefreshFraction > 0 && options.RefreshFraction <= 1) { // true for NaN too
		options.RefreshFraction = 0.8
	}
	if options.ExchangeTimeout <= 0 {
		options.ExchangeTimeout = 30 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Cache{
		options:  options,
		metrics:  newMetrics(options.ObjectMetrics),
		tokens:   xsync.NewMap[auth.Key, *entry](),
		flights:  map[auth.Key]*flight{},
		subjects: map[auth.Subject]*entry{},
		tenants:  tenants{byName: map[string]*tenant{}},
	}
}

// Get implements [auth.Cache].
func (c *Cache) Get(key auth.Key, minRemaining time.Duration, involved auth.InvolvedObject) (auth.Token, bool) {
	e, ok := c.tokens.Load(key)
	if !ok || !e.fresh(time.Now(), minRemaining) {
		return nil, false
	}
	c.metrics.hit(involved)
	return e.token, true
}

// Fetch implements [auth.Cache].
func (c *Cache) Fetch(ctx context.Context, key auth.Key, o auth.FetchOptions, fetch func(context.Context) (auth.Fetched, error)) (auth.Token, error) {
	if c.options.MaxSize <= 0 {
		ctx, cancel := context.WithTimeout(ctx, c.options.ExchangeTimeout)
		defer cancel()
		fetched, err := fetch(ctx)
		c.metrics.outcome(o.InvolvedObject, err)
		return fetched.Token, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}

	c.mu.Lock()
	now := time.Now()
	e, _ := c.tokens.Load(key)
	if e.fresh(now, o.MinRemaining) { // another flight landed since Get
		c.mu.Unlock()
		c.metrics.hit(o.InvolvedObject)
		return e.token, nil
	}
	f, err := c.join(ctx, key, e, now, o.RetryNow, fetch)
	c.mu.Unlock()

	if err == nil && e.servable(now, o.MinRemaining) {
		c.metrics.hit(o.InvolvedObject) // its refresh runs behind
		return e.token, nil
	}
	var token auth.Token
	if err == nil {
		select {
		case <-f.done:
			token, err = f.token, f.err
		case <-ctx.Done():
			token, err = nil, context.Cause(ctx)
		}
	}
	if err != nil && auth.IsTemporary(err) {
		if e, _ := c.tokens.Load(key); e.valid(time.Now()) {
			c.metrics.hit(o.InvolvedObject)
			return e.token, nil
		}
	}
	c.metrics.outcome(o.InvolvedObject, err)
	return token, err
}

// join returns the flight that serves key, the one under way or a new one, or else the failure that is remembered.
func (c *Cache) join(ctx context.Context, key auth.Key, e *entry, now time.Time, retryNow bool, fetch func(context.Context) (auth.Fetched, error)) (*flight, error) {
	if f := c.flights[key]; f != nil {
		return f, nil
	}
	if e != nil && now.Before(e.retryAt) && (!retryNow || now.Before(e.heldBack)) {
		return nil, e.failure
	}
	t := c.tenants.get(key.Subject.Namespace())
	if len(t.flights) >= maxFlightsPerTenant {
		return nil, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeThrottled, RetryAfter: time.Second,
			Fix: "use fewer identities in this namespace, or find out why its exchanges are slow",
			Err: errTooManyFlights,
		}
	}
	f := &flight{key: key, done: make(chan struct{})}
	c.flights[key] = f
	t.flights[f] = struct{}{}
	var pause time.Duration
	if retryNow && e != nil && e.failure != nil {
		pause = e.failedAt.Add(retryFloor).Sub(now)
	}
	// The flight serves others too, so it outlives this caller and has a deadline of its own.
	go c.fly(context.WithoutCancel(ctx), f, pause, fetch)
	return f, nil
}

// maxFlightsPerTenant bounds what a tenant whose exchanges hang costs everybody else.
const maxFlightsPerTenant = 64

var errTooManyFlights = errors.New("too many exchanges of this namespace are under way")

// fly makes the exchange, after a pause if that is positive. It runs in a goroutine of its own, where a panic would end the program
// for all tenants, and a flight that never landed would block its key for everybody: so it lands however fetch ends.
func (c *Cache) fly(ctx context.Context, f *flight, pause time.Duration, fetch func(context.Context) (auth.Fetched, error)) {
	var issued *entry
	var err error = &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeRefused, Fix: "report this as a fault of the program; its log has the place", Err: errBroken,
	}
	defer func() {
		if reason := recover(); reason != nil {
			// The type and the place say enough: the text may hold a secret.
			c.options.Logger.Error("an exchange panicked", "type", fmt.Sprintf("%T", reason), "key", f.key.Digest(), "stack", string(debug.Stack()))
		}
		c.land(f, issued, err)
	}()
	if pause > 0 {
		<-time.After(pause) // ctx has no end; the exchange's begins with it
	}
	issued, err = c.attempt(ctx, fetch)
}

var errBroken = errors.New("the exchange broke off")

// attempt calls fetch with a deadline of its own.
func (c *Cache) attempt(ctx context.Context, fetch func(context.Context) (auth.Fetched, error)) (*entry, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.ExchangeTimeout)
	defer cancel()
	fetched, err := fetch(ctx)
	switch {
	case err == nil:
		return c.issued(fetched, time.Now()), nil
	case errors.Is(err, context.DeadlineExceeded) && auth.CodeOf(err) == "":
		return nil, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeUnreachable,
			Fix: "see whether the provider can be reached from here", Err: err,
		}
	default:
		return nil, err
	}
}

// land answers those who wait, and keeps what the flight brought: a token, or the reason why there is none.
func (c *Cache) land(f *flight, issued *entry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(f.done)
	if f.err = err; err == nil {
		f.token = issued.token
	}
	t := c.tenants.get(f.key.Subject.Namespace())
	delete(t.flights, f)
	if f.dropped {
		c.tenants.forget(t)
		return
	}
	delete(c.flights, f.key)
	old, _ := c.tokens.Load(f.key)
	switch {
	case err != nil:
		c.put(old, old.failed(f.key, err, time.Now()))
	case issued.key == f.key:
		c.put(old, issued)
	case old != nil:
		// The subject is no longer what the key says; the change itself is on its way to Invalidate.
		c.remove(old)
	default:
		c.tenants.forget(t)
	}
}

// Invalidate drops everything that is kept for a subject. Exchanges under way still answer those who wait for them, but
// are not kept, and later callers begin new ones. It does no I/O, and its cost grows only with the subject's own tokens and its tenant's
// exchanges, so that it may run in the handler of an informer.
func (c *Cache) Invalidate(who auth.Subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.subjects[who]; e != nil; e = e.next {
		c.remove(e)
	}
	t := c.tenants.byName[who.Namespace()]
	if t == nil {
		return
	}
	for f := range t.flights {
		if f.key.Subject == who {
			f.dropped = true
			delete(c.flights, f.key)
		}
	}
}

// Run removes expired tokens and old failures once a minute until ctx ends, so that expired secrets do not stay in memory. That is all
// it does: it is the use of a token that has it refreshed, with or without Run.
func (c *Cache) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			c.sweep(now)
		}
	}
}

func (c *Cache) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.tokens.AllRelaxed() {
		if !e.valid(now) && e.failureOver(now) {
			c.remove(e)
		}
	}
}

// Len is the number of tokens that are kept and still valid.
func (c *Cache) Len() int {
	now, n := time.Now(), 0
	for _, e := range c.tokens.AllRelaxed() {
		if e.valid(now) {
			n++
		}
	}
	return n
}

// put keeps e in the place of old or, if that is nil, in a new place, making room if necessary. Callers hold mu.
func (c *Cache) put(old, e *entry) {
	t := c.tenants.get(e.key.Subject.Namespace())
	if old == nil {
		var victim *entry
		if c.tenants.size >= c.options.MaxSize {
			victim = c.tenants.victim(t, time.Now())
		}
		c.tenants.add(t, e) // before the victim goes, which may be all that its tenant has
		if victim != nil {
			c.evict(victim)
		}
	} else {
		c.unlink(old)
		c.tenants.replace(t, old, e)
	}
	if e.next = c.subjects[e.key.Subject]; e.next != nil {
		e.next.prev = e
	}
	c.subjects[e.key.Subject] = e
	c.tokens.Store(e.key, e)
}

// remove is put's opposite. Callers hold mu.
func (c *Cache) remove(e *entry) {
	c.tokens.Delete(e.key)
	c.unlink(e)
	c.tenants.remove(e)
}

// unlink takes e out of its subject's list; e.next still leads on.
func (c *Cache) unlink(e *entry) {
	if e.next != nil {
		e.next.prev = e.prev
	}
	switch {
	case e.prev != nil:
		e.prev.next = e.next
	case e.next != nil:
		c.subjects[e.key.Subject] = e.next
	default:
		delete(c.subjects, e.key.Subject)
	}
}

func (c *Cache) evict(e *entry) {
	now := time.Now()
	live := e.valid(now)
	c.remove(e)
	if !live {
		return
	}
	c.metrics.evictions.Inc()
	if c.warned.IsZero() || now.Sub(c.warned) >= time.Hour {
		c.warned = now
		c.options.Logger.Warn("token cache is smaller than its working set: valid tokens are evicted and will be exchanged again; raise --token-cache-max-size",
			"maxSize", c.options.MaxSize, "namespace", e.key.Subject.Namespace())
	}
}
