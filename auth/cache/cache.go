// Package cache stores tokens for [auth.GetToken]. It fetches each token once, and refreshes the
// token before it expires. It serves a token only for the token's own key. It drops a token as soon
// as the token's subject changes.
//
// What it promises:
//
//   - A hit takes no lock, does no I/O and does not allocate. It never waits for another key.
//   - One exchange serves all callers who need the same key. No lock is held during the exchange.
//     Each caller waits no longer than its own context.
//   - Exchanges and tokens are charged to the tenant (namespace) that asks for them, even for an
//     identity that is lent to many tenants. Tenants that ask for one key share its token.
//   - A tenant has at most 64 exchanges in progress. Up to 1024 more wait in the order of their
//     calls.
//   - A fetch may ask the cache for another token that it needs. The exchange for this token skips
//     the queue and starts at once. In the queue, it could wait for a place that the fetch holds.
//     Identities that need each other in a circle get an error.
//   - The first use of a token after about 80 % of its life starts a refresh in the background.
//     Callers wait for the refresh if the token's remaining life is not above the floor. The floor
//     is five minutes or a tenth of the token's life, whichever is less.
//   - If a refresh fails for a temporary reason, the old token is served until it expires. A
//     refusal drops the token.
//   - A failure is remembered for one second at first. After more failures in a row, it is
//     remembered for up to a minute. It is remembered longer if the server asked for a longer wait.
//   - With [auth.WithRetryNow], the next attempt may start two seconds after a failure. This does
//     not shorten a wait that the server asked for with a temporary failure.
//   - Capacity is fair. If the cache is full, a new token displaces a token of the same tenant, or
//     of a tenant with more tokens. It never displaces a token of a tenant with fewer tokens.
//   - [Cache.Invalidate] drops all tokens of a subject. Tokens of exchanges that are in progress
//     are not stored.
package cache

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// DefaultMaxSize is the default of [Options].MaxSize.
const DefaultMaxSize = 10_000

// KeepNothing is the [Options].MaxSize of a cache that keeps neither tokens nor failures: every
// call makes its exchange.
const KeepNothing = -1

// Options configure a [Cache]. The zero value is right for most programs.
type Options struct {
	// MaxSize limits the number of stored tokens and remembered failures. Default
	// [DefaultMaxSize]. Every negative value means [KeepNothing].
	MaxSize int
	// MaxDuration limits how long a token is served, even if it lives longer. Default one hour.
	MaxDuration time.Duration
	// RefreshFraction is a part of a token's life, between 0 and 1. After this part, a use of the
	// token starts its refresh. Default 0.8. The cache changes each token's fraction at random by
	// up to 0.05. So tokens that were issued together are not refreshed together.
	RefreshFraction float64
	// ExchangeTimeout limits one exchange, whatever deadlines its callers have. Default 30 s.
	ExchangeTimeout time.Duration
	// ObjectMetrics counts hits and misses for each involved object. There are as many series as
	// objects.
	ObjectMetrics bool
	// Logger gets a warning if the capacity is too small. It also gets a record of each exchange,
	// with the digest of the key ([auth.Key.Digest]). A success has level debug, a failure level
	// info, a panic level error. Hits are not logged. By default nothing is logged.
	Logger *slog.Logger
}

// Cache is an [auth.Cache], an [auth.Observer] and a Prometheus collector. Make it with [New].
type Cache struct {
	options Options
	metrics *metrics
	made    time.Time
	index   *index // hits read it without a lock

	// mu guards all writes to the index, and the fields below. It is never held during I/O.
	mu      sync.Mutex
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

// New makes an empty cache. Start [Cache.Run] in a goroutine, and give [Cache.Invalidate] to the
// Subscribe method of the [auth.AccountReader].
func New(options Options) *Cache {
	options.MaxSize = cmp.Or(options.MaxSize, DefaultMaxSize)
	if options.MaxDuration <= 0 {
		options.MaxDuration = time.Hour
	}
	options.MaxDuration = min(options.MaxDuration, century)
	if !(options.RefreshFraction > 0 && options.RefreshFraction <= 1) { // also true for NaN
		options.RefreshFraction = 0.8
	}
	if options.ExchangeTimeout <= 0 {
		options.ExchangeTimeout = 30 * time.Second
	}
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
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

// Fetch implements [auth.Cache]. The function fetch may itself call Fetch with its own context, to
// get another token that it needs.
func (c *Cache) Fetch(
	ctx context.Context, key auth.Key, o auth.FetchOptions, fetch func(context.Context) (auth.Fetched, error),
) (auth.Fetched, error) {
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
	if e.fresh(now, o.MinRemaining) { // another exchange ended after the call of Get
		c.mu.Unlock()
		c.metrics.hit(o.InvolvedObject)
		return auth.Fetched{Token: e.token, Key: key}, nil
	}
	servable := e.servable(now, o.MinRemaining)
	if servable {
		// The caller gets the old token. If the caller is itself a fetch (parent), it does not
		// wait for the refresh.
		parent = nil
	}
	f, err := c.join(ctx, parent, key, e, o, fetch)
	c.mu.Unlock()

	if err == nil && servable {
		c.metrics.hit(o.InvolvedObject) // a hit, because the caller does not wait for the refresh
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

// Invalidate drops all tokens and failures of a subject, whichever object asked for them. Exchanges
// in progress still answer their waiting callers, but their tokens are not stored. Later callers
// start new exchanges.
//
// Invalidate may run in the event handler of an informer. It does no I/O, and its cost grows only
// with the subject's own tokens and exchanges.
func (c *Cache) Invalidate(who auth.Subject) {
	c.InvalidateKeys(who, func(auth.Key) bool { return true })
}

// InvalidateKeys is like [Cache.Invalidate], but only for keys of the subject for which stale
// returns true. The function stale must not call the cache.
func (c *Cache) InvalidateKeys(who auth.Subject, stale func(auth.Key) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.index.of(who) {
		if stale(e.key()) {
			c.remove(e)
		}
	}
	for key, f := range c.flights[who] {
		if stale(key) {
			f.dropped = true
			c.unregister(f)
		}
	}
}

// Run removes expired tokens and old failures once a minute until ctx ends. Without Run, expired
// secrets could stay in memory. Run does not refresh tokens. The use of a token starts its refresh,
// with or without Run.
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

// Len returns the number of stored tokens that are still valid.
func (c *Cache) Len() int {
	now, n := c.now(), 0
	for e := range c.index.all() {
		if e.valid(now) {
			n++
		}
	}
	return n
}

// put stores e in place of old and charges e to t. If old is nil and the cache is full, put evicts
// another entry. Callers hold mu.
func (c *Cache) put(t *tenant, old, e *entry) {
	var victim *entry
	if old == nil && c.tenants.size >= c.options.MaxSize {
		victim = c.tenants.victim(t, c.now())
	}
	// Remove entries last. Otherwise readers would miss the key in between, and a tenant whose only
	// entry is replaced would be forgotten.
	c.tenants.add(t, e)
	c.index.insert(e)
	if old != nil {
		c.remove(old)
	}
	if victim != nil {
		c.evict(victim)
	}
}

// remove removes e from the index and from its tenant. Callers hold mu.
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
		c.options.Logger.Warn("token cache is smaller than its working set: valid tokens are evicted and will be exchanged again; raise "+
			"--token-cache-max-size",
			"maxSize", c.options.MaxSize, "namespace", e.tenant.name)
	}
}
