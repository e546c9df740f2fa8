// Package cache keeps tokens for [auth.GetToken]. It gets each token once, refreshes it before its
// end, gives it to nobody else, and drops it the moment its subject changes.
//
// What it promises:
//
//   - A hit takes no lock, does no I/O and does not allocate. It never waits for another key.
//   - One exchange serves all callers who need the same key. No lock is held while it runs, and
//     each caller waits no longer than its own context.
//   - The tenant (namespace) that asks is charged, even for an identity that is lent to many
//     tenants. It has at most 64 exchanges under way; 1024 more wait in the order of their calls.
//     Tenants that ask for one key share its token.
//   - A fetch may ask the cache for a token that it needs. That exchange starts at once, so that
//     chains do not wait for themselves. Identities that need each other in a circle get an error.
//   - From about 80 % of its life on, a token that is used is refreshed in the background. A token
//     with less than its floor left (the lesser of five minutes and a tenth of its life) is not
//     given out without waiting for its refresh.
//   - While a refresh fails for a temporary reason, the old token serves until its end. A refusal
//     drops the token.
//   - A failure is remembered, for one second at first and for up to a minute later, or longer if
//     the other side asked for it. [auth.WithRetryNow] shortens this to two seconds, but not a wait
//     that the other side asked for.
//   - Capacity is fair. A tenant that wants more room than there is loses its own tokens, or those
//     of a tenant that is charged for more; never those of a tenant that is charged for fewer.
//   - [Cache.Invalidate] drops all tokens of a subject, and does not keep those that were already
//     on their way.
package cache

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// DefaultMaxSize is how many tokens and remembered failures a [Cache] keeps by default.
const DefaultMaxSize = 10_000

// KeepNothing is the [Options].MaxSize of a cache that keeps neither tokens nor failures: every
// call makes its exchange.
const KeepNothing = -1

// Options configure a [Cache]. The zero value is right for most programs.
type Options struct {
	// MaxSize is how many tokens and remembered failures are kept. Default [DefaultMaxSize]. Every
	// negative value means [KeepNothing].
	MaxSize int
	// MaxDuration bounds how long any token is served, however long it lives. Default one hour.
	MaxDuration time.Duration
	// RefreshFraction is the part of a token's life after which use refreshes it, between 0 and 1.
	// Default 0.8. Each token gets its own, up to 0.05 away, so that tokens which were issued
	// together are not refreshed together.
	RefreshFraction float64
	// ExchangeTimeout bounds one exchange, whatever deadlines its callers have. Default 30 s.
	ExchangeTimeout time.Duration
	// ObjectMetrics counts hits and misses for every involved object: as many series as objects.
	ObjectMetrics bool
	// Logger gets the warning that the capacity is too small, and each exchange with the digest of
	// its key ([auth.Key.Digest]): a success at level debug, a failure at level info, a panic as an
	// error. Hits are not logged. By default nothing is logged.
	Logger *slog.Logger
}

// Cache is an [auth.Cache], an [auth.Observer] and a Prometheus collector. Make it with [New].
type Cache struct {
	options Options
	metrics *metrics
	made    time.Time
	index   *index // hits read it without a lock

	mu      sync.Mutex // guards all writes to the index, and what follows; never held during I/O
	flights map[auth.Subject]map[auth.Key]*flight
	tenants tenants
	warned  time.Time
}

var (
	_ auth.Cache    = (*Cache)(nil)
	_ auth.Observer = (*Cache)(nil)
)

// century is longer than any token lives, and short enough that no sum of durations overflows.
const century = 100 * 365 * 24 * time.Hour

// New makes an empty cache. Start [Cache.Run] in a goroutine, and subscribe [Cache.Invalidate] to
// the accounts.
func New(options Options) *Cache {
	options.MaxSize = cmp.Or(options.MaxSize, DefaultMaxSize)
	if options.MaxDuration <= 0 {
		options.MaxDuration = time.Hour
	}
	options.MaxDuration = min(options.MaxDuration, century)
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
		options: options,
		metrics: newMetrics(options.ObjectMetrics),
		made:    time.Now(),
		index:   newIndex(options.MaxSize),
		flights: map[auth.Subject]map[auth.Key]*flight{},
		tenants: tenants{byName: map[string]*tenant{}},
	}
}

// Get implements [auth.Cache].
func (c *Cache) Get(key auth.Key, minRemaining time.Duration, involved auth.InvolvedObject) (auth.Token, bool) {
	e := c.index.load(&key)
	if !e.fresh(c.now(), minRemaining) {
		return nil, false
	}
	c.metrics.hit(involved)
	return e.token, true
}

// Fetch implements [auth.Cache]. A fetch may itself call Fetch with the context that it was given:
// for a token that it needs to get its own.
func (c *Cache) Fetch(ctx context.Context, key auth.Key, o auth.FetchOptions, fetch func(context.Context) (auth.Fetched, error)) (auth.Fetched, error) {
	if c.options.MaxSize < 0 {
		return c.fetchAlone(ctx, key, o, fetch)
	}
	if err := context.Cause(ctx); err != nil {
		return auth.Fetched{}, err
	}
	parent := c.flightOf(ctx)

	c.mu.Lock()
	now := c.now()
	e := c.index.load(&key)
	if e.fresh(now, o.MinRemaining) { // another flight landed since Get
		c.mu.Unlock()
		c.metrics.hit(o.InvolvedObject)
		return auth.Fetched{Token: e.token, Key: key}, nil
	}
	servable := e.servable(now, o.MinRemaining)
	if servable {
		parent = nil // no flight needs the refresh of a token that is served meanwhile
	}
	f, err := c.join(ctx, parent, key, e, o, fetch)
	c.mu.Unlock()

	if err == nil && servable {
		c.metrics.hit(o.InvolvedObject) // its refresh runs behind
		return auth.Fetched{Token: e.token, Key: key}, nil
	}
	var fetched auth.Fetched
	if err == nil {
		fetched, err = c.wait(ctx, f, parent)
	}
	if err != nil && auth.IsTemporary(err) {
		if e := c.index.load(&key); e.valid(c.now()) {
			c.metrics.hit(o.InvolvedObject)
			return auth.Fetched{Token: e.token, Key: key}, nil
		}
	}
	c.metrics.outcome(o.InvolvedObject, err)
	return fetched, err
}

// Invalidate drops everything that is kept for a subject, whichever object asked for it. Exchanges
// under way still answer their waiting callers, but their tokens are not kept. Later callers begin
// new exchanges. It does no I/O, and its cost grows only with the subject's own tokens and
// exchanges, so that it may run in the handler of an informer.
func (c *Cache) Invalidate(who auth.Subject) {
	c.InvalidateKeys(who, func(auth.Key) bool { return true })
}

// InvalidateKeys is [Cache.Invalidate] for those keys of a subject that stale picks. Stale must not
// call the cache.
func (c *Cache) InvalidateKeys(who auth.Subject, stale func(auth.Key) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.index.of(who) {
		if stale(e.key()) {
			c.remove(e)
		}
	}
	flights := c.flights[who]
	for key, f := range flights {
		if stale(key) {
			f.dropped = true
			delete(flights, key)
		}
	}
	if len(flights) == 0 {
		delete(c.flights, who)
	}
}

// Run removes expired tokens and old failures once a minute until ctx ends, so that expired secrets
// do not stay in memory. That is all it does: it is the use of a token that has it refreshed, with
// or without Run.
func (c *Cache) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.sweep(c.now())
		}
	}
}

func (c *Cache) sweep(now instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.index.all() {
		if !e.valid(now) && e.failure.over(now.mono) {
			c.remove(e)
		}
	}
}

// Len is the number of tokens that are kept and still valid.
func (c *Cache) Len() int {
	now, n := c.now(), 0
	for e := range c.index.all() {
		if e.valid(now) {
			n++
		}
	}
	return n
}

// put keeps e, charged to t, in the place of old or, if old is nil, in a new place, making room if
// necessary. Callers hold mu.
func (c *Cache) put(t *tenant, old, e *entry) {
	var victim *entry
	if old == nil && c.tenants.size >= c.options.MaxSize {
		victim = c.tenants.victim(t, c.now())
	}
	// What has to go goes last: readers then never miss the key, and a tenant is not forgotten and
	// made again.
	c.tenants.add(t, e)
	c.index.insert(e)
	if old != nil {
		c.remove(old)
	}
	if victim != nil {
		c.evict(victim)
	}
}

// remove is put's opposite. Callers hold mu.
func (c *Cache) remove(e *entry) {
	c.index.remove(e)
	c.tenants.remove(e)
}

func (c *Cache) evict(e *entry) {
	live := e.valid(c.now())
	c.remove(e)
	if !live {
		return
	}
	c.metrics.evictions.Inc()
	if now := time.Now(); c.warned.IsZero() || now.Sub(c.warned) >= time.Hour {
		c.warned = now
		c.options.Logger.Warn("token cache is smaller than its working set: valid tokens are evicted and will be exchanged again; raise --token-cache-max-size",
			"maxSize", c.options.MaxSize, "namespace", e.tenant.name)
	}
}
