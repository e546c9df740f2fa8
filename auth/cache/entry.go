package cache

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
	"unique"

	"github.com/lanyard-dev/lanyard/auth"
)

// entry is the state of one key: a token, a failure to get a token, or both. A nil entry means that
// nothing is known.
//
// A hit reads entries without a lock. So the fields that it reads never change, except for the
// atomic field chain. A new state is a new entry.
//
// There are as many entries as tokens, so each byte counts. A test fails if the entry grows into
// the next size class of Go's allocator.
type entry struct {
	token     auth.Token    // nil if there is only a failure
	refreshAt time.Duration // time from Cache.made until the refresh is due; the next use starts it
	until     time.Duration // time from Cache.made to the token's expiry, by the monotonic clock
	untilWall time.Duration // time from Cache.made to the token's expiry, by the wall clock

	// The next four fields together are the key. Most keys differ only in uid, identity and
	// subject. The field named others has the rest of the key, which many entries share. The
	// strings usually cost no memory, because an informer stores them anyway.
	uid      string
	identity string
	subject  auth.Subject
	others   unique.Handle[auth.Key]

	failure *failure // why the last attempt failed; nil after a success

	// The neighbours in the index. The field chain is the next entry in the bucket of the key. The
	// fields prev and next are the neighbours in the bucket of the subject.
	chain      atomic.Pointer[entry]
	prev, next *entry // guarded by Cache.mu

	tenant *tenant // the tenant whose entries include this one; guarded by Cache.mu
	slot   int32   // the position in tenant.entries; guarded by Cache.mu
	// The floor in milliseconds. If a token's remaining life is not above the floor, the token is
	// served only if its refresh fails.
	floor int32
}

// failure is the reason why there is no new token.
type failure struct {
	err     error
	count   int           // failed attempts in a row
	at      time.Duration // time from Cache.made to the last failed attempt
	retryAt time.Duration // time from Cache.made until which callers get the failure
	// heldBack is the time from Cache.made to the end of the pause that the server asked for.
	// RetryNow cannot shorten this pause. heldBack is zero if the server asked for none, or if the
	// failure is not temporary.
	heldBack time.Duration
}

// instant is a moment on both clocks, as durations since the cache was made. A token must be valid
// by both clocks, because either of them can be behind. The monotonic clock stands still while a
// machine sleeps. The wall clock may be set back.
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

// key returns the key of e.
func (e *entry) key() auth.Key {
	key := e.others.Value()
	key.UID, key.Identity, key.Subject = e.uid, e.identity, e.subject
	return key
}

// issued returns the entry for a token that has just been issued.
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
	// mostFloor is the upper limit of entry.floor. Below this limit, the floor is a tenth of the
	// token's life.
	mostFloor  = 5 * time.Minute
	firstRetry = time.Second
	lastRetry  = time.Minute
	// retryFloor is the shortest pause after a failure, even with RetryNow. Otherwise anyone who
	// may change an object could cause retries without end.
	retryFloor = 2 * time.Second
	// lastRetryAfter is the longest wait that a server can ask for. It is limited, because the
	// server may be a tenant's.
	lastRetryAfter = 15 * time.Minute
)

// failed returns the entry that replaces e after a failure. A temporary failure keeps the token;
// any other failure drops it.
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
	// Until retryAt, a use of a valid token is a hit and starts no refresh.
	next.refreshAt = max(next.refreshAt, next.failure.retryAt)
	return next
}

// wait sets how long callers get the failure.
func (f *failure) wait() {
	wait := min(lastRetry, firstRetry<<min(f.count-1, 6))
	if reason, ok := errors.AsType[*auth.Error](f.err); ok && reason.RetryAfter > 0 {
		asked := min(lastRetryAfter, reason.RetryAfter)
		wait = max(wait, asked)
		// Leave heldBack unset after a refusal, so that RetryNow can shorten the pause. The server
		// that asked for the pause cannot know when somebody has fixed the cause.
		if reason.Temporary() {
			f.heldBack = f.at + asked
		}
	}
	f.retryAt = f.at + wait
}

// answers reports whether callers get the failure, instead of another attempt.
func (f *failure) answers(now time.Duration, retryNow bool) bool {
	return f != nil && now < f.retryAt && (!retryNow || now < f.heldBack)
}

// over reports whether the failure is so long ago that a new failure counts as the first.
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
