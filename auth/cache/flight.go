package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

const (
	// maxFlights is the maximum number of running flights per tenant. It limits what a tenant with
	// hanging exchanges costs other tenants.
	maxFlights = 64
	// maxQueue is the maximum number of waiting flights per tenant, while maxFlights are running.
	maxQueue = 1024
)

// flight is one exchange for all callers who need its key. It waits for its start, runs, and lands.
type flight struct {
	key     auth.Key
	done    chan struct{} // closed when fetched and err are set
	fetched auth.Fetched
	err     error

	// caller is the flight whose fetch made this flight. It is set only in a cache with
	// [KeepNothing].
	caller *flight

	// Guarded by Cache.mu:
	begin   func()    // starts the exchange; nil once the flight has started
	tenant  string    // the tenant that is charged for the token; set when the flight starts
	counted bool      // whether the flight counts towards maxFlights; set when it starts
	needs   []*flight // the flights that this flight's fetch waits for
	dropped bool      // the subject has changed: do not store the token
}

type fetchFunc = func(context.Context) (auth.Fetched, error)

// flightKey is the key under which a context stores the flight whose fetch uses this context. Each
// cache has a key of its own.
type flightKey struct{ cache *Cache }

// withFlight returns the context for f's fetch.
func withFlight(ctx context.Context, c *Cache, f *flight) context.Context {
	return context.WithValue(ctx, flightKey{c}, f)
}

// flightOf returns the flight whose fetch uses ctx, or nil if no running fetch uses ctx.
func (c *Cache) flightOf(ctx context.Context) *flight {
	f, _ := ctx.Value(flightKey{c}).(*flight)
	// Something that the fetch left behind, such as an SDK's client, may still use ctx after the
	// fetch has ended. Then ctx belongs to no running flight.
	if f == nil || f.landed() {
		return nil
	}
	return f
}

func (f *flight) landed() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// join returns the flight that serves the key, or the remembered failure. parent is the flight
// whose fetch needs the result, or nil. join records that parent needs the returned flight. Callers
// hold mu.
func (c *Cache) join(ctx context.Context, parent *flight, key auth.Key, e *entry, o auth.FetchOptions, fetch fetchFunc) (*flight, error) {
	f := c.flights[key.Subject][key]
	if f == nil {
		if e != nil && e.failure.answers(c.now().mono, o.RetryNow) {
			return nil, e.failure.err
		}
		f = c.newFlight(ctx, key, e, o.RetryNow, fetch)
	}
	if parent != nil && f.leadsTo(parent) {
		return nil, circle()
	}
	if err := c.schedule(f, o.Tenant, parent != nil); err != nil {
		return nil, err
	}
	if parent != nil {
		parent.needs = append(parent.needs, f)
	}
	c.register(f)
	return f, nil
}

// newFlight returns a flight that has not started.
func (c *Cache) newFlight(ctx context.Context, key auth.Key, e *entry, retryNow bool, fetch fetchFunc) *flight {
	f := &flight{key: key, done: make(chan struct{})}
	var notBefore time.Duration
	if retryNow && e != nil && e.failure != nil {
		notBefore = e.failure.at + retryFloor
	}
	// The flight also serves other callers, so it outlives this caller and has a deadline of its
	// own.
	ctx = context.WithoutCancel(ctx)
	f.begin = func() { go c.fly(ctx, f, notBefore, fetch) }
	return f
}

func (c *Cache) register(f *flight) {
	ofSubject := c.flights[f.key.Subject]
	if ofSubject == nil {
		ofSubject = map[auth.Key]*flight{}
		c.flights[f.key.Subject] = ofSubject
	}
	ofSubject[f.key] = f
}

func (c *Cache) unregister(f *flight) {
	ofSubject := c.flights[f.key.Subject]
	delete(ofSubject, f.key)
	if len(ofSubject) == 0 {
		delete(c.flights, f.key.Subject)
	}
}

// schedule starts f or puts it into the tenant's queue. If f has already started, schedule does
// nothing.
//
// A flight that another flight needs starts at once. It does not count towards maxFlights, because
// a flight that waits for it, directly or indirectly, already counts.
//
// A flight in the queues of several tenants starts as soon as one of them has room. So no tenant
// waits for another tenant's exchanges.
func (c *Cache) schedule(f *flight, tenant string, needed bool) error {
	if f.begin == nil {
		return nil
	}
	if needed {
		f.start(tenant)
		return nil
	}
	t := c.tenants.get(tenant)
	if t.flights < maxFlights {
		t.start(f)
		return nil
	}
	if slices.Contains(t.queue, f) {
		return nil
	}
	if len(t.queue) >= maxQueue {
		return &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeThrottled, RetryAfter: time.Second,
			Fix: "use fewer identities in this namespace, or find out why its exchanges are slow",
			Err: errors.New("too many exchanges of this namespace are under way"),
		}
	}
	t.queue = append(t.queue, f)
	return nil
}

// start starts the exchange and charges it to tenant.
func (f *flight) start(tenant string) {
	f.tenant = tenant
	f.begin()
	f.begin = nil
}

// leadsTo reports whether f is the other flight, or waits for it directly or indirectly. The search
// ends, because flights never wait for each other in a circle.
func (f *flight) leadsTo(other *flight) bool {
	return f == other || slices.ContainsFunc(f.needs, func(needed *flight) bool { return needed.leadsTo(other) })
}

// circle returns the error for a flight that would wait for itself.
func circle() error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
		Fix: "give one of the identities in the circle a source outside the circle",
		Err: errors.New("the identity needs itself, directly or by way of other identities"),
	}
}

// wait waits for f and returns its result, or context.Cause(ctx) if ctx ends first. parent is the
// flight that waits, or nil.
func (c *Cache) wait(ctx context.Context, f, parent *flight) (auth.Fetched, error) {
	if parent != nil {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			i := slices.Index(parent.needs, f)
			parent.needs = slices.Delete(parent.needs, i, i+1)
		}()
	}
	select {
	case <-f.done:
		return f.fetched, f.err
	case <-ctx.Done():
		return auth.Fetched{}, context.Cause(ctx)
	}
}

// fly makes the exchange, but not before notBefore. It runs in its own goroutine, where an
// unrecovered panic would end the program for all tenants. A flight that never lands would block
// its key for everybody. So fly recovers from panics, and the flight lands however fetch ends.
func (c *Cache) fly(ctx context.Context, f *flight, notBefore time.Duration, fetch fetchFunc) {
	var fetched auth.Fetched
	var issued *entry
	var err error = &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeRefused, Fix: "report this as a fault of the program; its log has the place", Err: errBroken,
	}
	defer func() {
		if reason := recover(); reason != nil {
			// Log only the panic's type and place, because its text may contain a secret.
			c.options.Logger.Error("an exchange panicked", "type", fmt.Sprintf("%T", reason), "key", f.key.Digest(), "stack", string(debug.Stack()))
		}
		c.land(f, fetched, issued, err)
	}()
	if pause := notBefore - c.now().mono; pause > 0 {
		// There is no need to watch ctx: it never ends. attempt sets the deadline after the pause.
		<-time.After(pause)
	}
	fetched, issued, err = c.attempt(withFlight(ctx, c, f), f.key, fetch)
}

var errBroken = errors.New("the exchange broke off")

// attempt calls fetch with its own deadline. If the token's key is not the requested key, the
// subject has changed. The returned entry is then nil.
func (c *Cache) attempt(ctx context.Context, key auth.Key, fetch fetchFunc) (auth.Fetched, *entry, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.ExchangeTimeout)
	defer cancel()
	fetched, err := fetch(ctx)
	c.log(ctx, key, err)
	switch {
	case err == nil:
		issued := c.issued(key, fetched.Token, c.now()) // panics if the token is nil
		if fetched.Key != key {
			issued = nil
		}
		return fetched, issued, nil
	case errors.Is(err, context.DeadlineExceeded) && auth.CodeOf(err) == "":
		return auth.Fetched{}, nil, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeUnreachable,
			Fix: "check whether this program can reach the provider", Err: err,
		}
	default:
		return auth.Fetched{}, nil, err
	}
}

// log logs an exchange. People compare the digest of the key with other log lines, and with the
// diagnosis of an object.
func (c *Cache) log(ctx context.Context, key auth.Key, err error) {
	level, outcome := slog.LevelDebug, "success"
	if err != nil {
		level, outcome = slog.LevelInfo, cmp.Or(string(auth.CodeOf(err)), "error")
	}
	if c.options.Logger.Enabled(ctx, level) {
		c.options.Logger.Log(ctx, level, "exchange", "key", key.Digest(), "provider", key.Provider, "subject", key.Subject.String(),
			"outcome", outcome)
	}
}

// land answers the waiting callers, stores the result of the flight, and starts the tenant's next
// flight.
func (c *Cache) land(f *flight, fetched auth.Fetched, issued *entry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(f.done)
	f.fetched, f.err = fetched, err
	t := c.tenants.get(f.tenant)
	if f.counted {
		t.flights--
		t.startNext()
	}
	if !f.dropped {
		c.unregister(f)
		c.keep(t, f.key, issued, err)
	}
	c.tenants.forget(t)
}

// keep stores the issued token, or the failure. Callers hold mu.
func (c *Cache) keep(t *tenant, key auth.Key, issued *entry, err error) {
	old := c.index.load(&key)
	switch {
	case err != nil:
		c.put(t, old, old.failed(key, err, c.now().mono))
	case issued != nil:
		c.put(t, old, issued)
	case old != nil:
		// The subject has changed since the caller made the key. Remove the old token now, before
		// Invalidate is called for this change.
		c.remove(old)
	}
}

// fetchAlone makes an exchange that is neither shared nor stored.
func (c *Cache) fetchAlone(ctx context.Context, key auth.Key, o auth.FetchOptions, fetch fetchFunc) (auth.Fetched, error) {
	f := &flight{key: key, done: make(chan struct{}), caller: c.flightOf(ctx)}
	defer close(f.done)
	for caller := f.caller; caller != nil; caller = caller.caller {
		if caller.key == key {
			return auth.Fetched{}, circle()
		}
	}
	ctx, cancel := context.WithTimeout(withFlight(ctx, c, f), c.options.ExchangeTimeout)
	defer cancel()
	fetched, err := fetch(ctx)
	c.log(ctx, key, err)
	c.metrics.outcome(o.InvolvedObject, err)
	return fetched, err
}
