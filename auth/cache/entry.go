package cache

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// entry is what is known about one key: a token, a failure to get one, or both. The fields that a hit reads never change.
// A nil entry is valid: nothing is known.
type entry struct {
	// The fields that a hit reads come first, so that they share cache lines.
	token     auth.Token // nil: none
	refreshAt time.Time  // from then on use refreshes the token
	floorAt   time.Time  // from then on it is served only if its refresh fails
	until     time.Time  // from then on it is not served at all

	failure  error     // why the last attempt failed; nil: it did not
	failures int       // in a row
	failedAt time.Time // when the last one was
	retryAt  time.Time // the failure is the answer until then
	heldBack time.Time // until then the other side asked to be left alone: the failure is the answer whoever asks

	key        auth.Key
	slot       int    // index among its tenant's entries; guarded by Cache.mu
	prev, next *entry // neighbours in the list of the same subject; guarded by Cache.mu
}

// issued makes the entry of a token that was got at now.
func (c *Cache) issued(fetched auth.Fetched, now time.Time) *entry {
	life := min(fetched.Token.GetDuration(), c.options.MaxDuration)
	//nolint:gosec // spreads refreshes over time; not a secret.
	fraction := max(0.01, min(1, c.options.RefreshFraction+(rand.Float64()-0.5)/10))
	return &entry{
		key:       fetched.Key,
		token:     fetched.Token,
		refreshAt: now.Add(time.Duration(float64(life) * fraction)),
		floorAt:   now.Add(life - min(5*time.Minute, life/10)),
		until:     now.Add(life),
	}
}

const (
	firstRetry = time.Second
	lastRetry  = time.Minute
	// retryFloor is the least pause after a failure: anyone who may change an object could ask for retries without end.
	retryFloor = 2 * time.Second
	// lastRetryAfter bounds the wait that the other side can ask for: it may be a tenant's own server.
	lastRetryAfter = 15 * time.Minute
)

// failed makes the entry that follows e after a failure: a temporary one keeps the token, any other drops it.
func (e *entry) failed(key auth.Key, err error, now time.Time) *entry {
	next := &entry{key: key, failure: err, failures: 1, failedAt: now}
	if e != nil {
		next.failures += e.failures
		if auth.IsTemporary(err) {
			next.token, next.refreshAt, next.floorAt, next.until = e.token, e.refreshAt, e.floorAt, e.until
		}
	}
	wait := lastRetry
	if doublings := next.failures - 1; doublings < 6 {
		wait = min(lastRetry, firstRetry<<doublings)
	}
	if failure, ok := errors.AsType[*auth.Error](err); ok && failure.RetryAfter > 0 {
		asked := min(lastRetryAfter, failure.RetryAfter)
		wait = max(wait, asked)
		if failure.Temporary() { // what is refused may be mended here, and the other side not know
			next.heldBack = now.Add(asked)
		}
	}
	next.retryAt = now.Add(wait)
	if next.refreshAt.Before(next.retryAt) {
		next.refreshAt = next.retryAt // until then a token that still serves is a plain hit
	}
	return next
}

// fresh reports whether the token can be served and is not yet due for its refresh.
func (e *entry) fresh(now time.Time, minRemaining time.Duration) bool {
	return e != nil && now.Before(e.refreshAt) && e.servable(now, minRemaining)
}

// servable reports whether the token can be served without waiting for its refresh.
func (e *entry) servable(now time.Time, minRemaining time.Duration) bool {
	if !e.valid(now) {
		return false
	}
	if minRemaining > 0 {
		return e.until.Sub(now) >= minRemaining
	}
	return now.Before(e.floorAt)
}

// valid reports whether there is a token that may be served at all. Both clocks must say so: the monotonic one stands
// still while a machine sleeps, the other may be set back.
func (e *entry) valid(now time.Time) bool {
	return e != nil && e.token != nil && now.Before(e.until) && now.UnixNano() < e.until.UnixNano()
}

// failureOver reports whether a failure is so long ago that the next one counts as the first.
func (e *entry) failureOver(now time.Time) bool {
	return e.failure == nil || now.Sub(e.retryAt) > 2*lastRetry
}
