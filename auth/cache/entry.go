package cache

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
	"unique"

	"github.com/lanyard-dev/lanyard/auth"
)

// entry is what is known about one key: a token, a failure to get a token, or both. The fields that
// a hit reads never change: a new state is a new entry. A nil entry is valid: nothing is known.
//
// There are as many entries as tokens, so that each byte counts: a test fails if the entry grows
// into the next size class of Go's allocator.
type entry struct {
	// The token; nil if there is only a failure. Its times count from when the cache was made.
	token     auth.Token
	refreshAt time.Duration // from then on, use refreshes the token
	until     time.Duration // the end by the monotonic clock
	untilWall time.Duration // the end by the wall clock

	// The key. In most keys the other fields are equal, so they are kept once for all entries. The
	// strings are those of the first caller: usually an informer's, and in memory anyway.
	uid      string
	identity string
	subject  auth.Subject
	others   unique.Handle[auth.Key]

	failure *failure // why the last attempt failed; nil after a success

	// The neighbours in the index: in the bucket of the key, and in that of the subject.
	chain      atomic.Pointer[entry]
	prev, next *entry // guarded by Cache.mu

	tenant *tenant // the tenant that is charged; guarded by Cache.mu
	slot   int32   // the place in tenant.entries; guarded by Cache.mu
	floor  int32   // milliseconds; with less left, the token serves only if its refresh fails
}

// failure is why there is no new token. Its times count from when the cache was made.
type failure struct {
	err      error
	count    int           // how many attempts have failed in a row
	at       time.Duration // when the last attempt failed
	retryAt  time.Duration // until then the failure is the answer
	heldBack time.Duration // until then also with RetryNow: the other side asked for a pause
}

// instant is a moment on both clocks, counted from when the cache was made. The monotonic clock
// stands still while a machine sleeps; the wall clock may be set back.
type instant struct{ mono, wall time.Duration }

func (c *Cache) now() instant {
	now := time.Now()
	return instant{mono: now.Sub(c.made), wall: time.Duration(now.UnixNano() - c.made.UnixNano())}
}

// newEntry makes the entry of a key about which nothing is known yet.
func newEntry(key auth.Key) *entry {
	e := &entry{uid: key.UID, identity: key.Identity, subject: key.Subject}
	key.UID, key.Identity, key.Subject = "", "", auth.Subject{}
	e.others = unique.Make(key)
	return e
}

// key is the key that e was made of.
func (e *entry) key() auth.Key {
	key := e.others.Value()
	key.UID, key.Identity, key.Subject = e.uid, e.identity, e.subject
	return key
}

// issued makes the entry of a token that was got at now.
func (c *Cache) issued(key auth.Key, token auth.Token, now instant) *entry {
	life := min(token.GetDuration(), c.options.MaxDuration)
	//nolint:gosec // spreads refreshes over time; not a secret.
	fraction := max(0.01, min(1, c.options.RefreshFraction+(rand.Float64()-0.5)/10))
	e := newEntry(key)
	e.token = token
	e.refreshAt = now.mono + time.Duration(float64(life)*fraction)
	e.until, e.untilWall = now.mono+life, now.wall+life
	e.floor = int32(min(mostFloor, life/10) / time.Millisecond) //nolint:gosec // at most mostFloor
	return e
}

const (
	// mostFloor bounds the floor, which is a tenth of a token's life.
	mostFloor  = 5 * time.Minute
	firstRetry = time.Second
	lastRetry  = time.Minute
	// retryFloor is the least pause after a failure: anyone who may change an object could ask for
	// retries without end.
	retryFloor = 2 * time.Second
	// lastRetryAfter bounds the wait that the other side can ask for: it may be a tenant's own
	// server.
	lastRetryAfter = 15 * time.Minute
)

// failed makes the entry that follows e after a failure: a temporary one keeps the token, any other
// drops it.
func (e *entry) failed(key auth.Key, err error, now time.Duration) *entry {
	next := newEntry(key)
	next.failure = &failure{err: err, count: 1, at: now}
	if e != nil {
		if e.failure != nil {
			next.failure.count += e.failure.count
		}
		if auth.IsTemporary(err) {
			next.token, next.refreshAt, next.until, next.untilWall, next.floor = e.token, e.refreshAt, e.until, e.untilWall, e.floor
		}
	}
	next.failure.wait()
	// Until the next attempt, a token that still serves is a plain hit.
	next.refreshAt = max(next.refreshAt, next.failure.retryAt)
	return next
}

// wait sets for how long the failure is the answer.
func (f *failure) wait() {
	wait := lastRetry
	if doublings := f.count - 1; doublings < 6 {
		wait = min(lastRetry, firstRetry<<doublings)
	}
	if reason, ok := errors.AsType[*auth.Error](f.err); ok && reason.RetryAfter > 0 {
		asked := min(lastRetryAfter, reason.RetryAfter)
		wait = max(wait, asked)
		if reason.Temporary() { // what is refused may be mended here, and the other side not know
			f.heldBack = f.at + asked
		}
	}
	f.retryAt = f.at + wait
}

// answers reports whether the failure is the answer, instead of another attempt.
func (f *failure) answers(now time.Duration, retryNow bool) bool {
	return f != nil && now < f.retryAt && (!retryNow || now < f.heldBack)
}

// over reports whether the failure is so long ago that the next one counts as the first.
func (f *failure) over(now time.Duration) bool {
	return f == nil || now-f.retryAt > 2*lastRetry
}

// fresh reports whether the token can be served and is not yet due for its refresh.
func (e *entry) fresh(now instant, minRemaining time.Duration) bool {
	return e != nil && now.mono < e.refreshAt && e.servable(now, minRemaining)
}

// servable reports whether the token can be served without waiting for its refresh.
func (e *entry) servable(now instant, minRemaining time.Duration) bool {
	if !e.valid(now) {
		return false
	}
	if minRemaining > 0 {
		return e.until-now.mono >= minRemaining
	}
	return e.until-now.mono > time.Duration(e.floor)*time.Millisecond
}

// valid reports whether the entry has a token that may be served. The token must be valid by both
// clocks.
func (e *entry) valid(now instant) bool {
	return e != nil && e.token != nil && now.mono < e.until && now.wall < e.untilWall
}
