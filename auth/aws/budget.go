package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
	"github.com/lanyard-dev/lanyard/auth/share"
)

const (
	// maxCalls limits the concurrent calls of a budget. AWS permits an account 600 calls a second
	// in a region, and a call takes some hundredths of a second. Source: IAM user guide,
	// "IAM and AWS STS quotas".
	maxCalls = 20
	// maxWaiting limits the waiting calls of a budget. Package auth/cache has the same limit for
	// the waiting exchanges of one tenant.
	maxWaiting = 1024
	// maxKnown prevents unused budgets from taking more and more memory. If there are maxKnown
	// budgets, join first removes idle budgets (see sweep). Only then, join makes a new budget.
	maxKnown = 1024
	// firstPause is the pause after the first throttled answer. Each further throttled answer
	// doubles the pause.
	firstPause = time.Second
	// lastPause is the longest pause that doubling gives. A pause that AWS asks for can be longer.
	lastPause = time.Minute
)

// budgets limit the calls to AWS STS that are signed with a session or with keys. AWS counts these
// calls per signing account and region. So each account has its own budget in a region, and never
// waits for the calls of another account. The zero value is ready for use.
type budgets struct {
	mu    sync.Mutex // guards known and the fields of each budget; never held during I/O or a wait
	known map[payer]*budget
}

// payer identifies the budget of a call. AWS counts the call against the quota of an account in a
// region. The field tenant is set only if this tenant chose the call's proxy or STS endpoint. That
// proxy or endpoint may be slow. So these calls have their own budget, and do not delay the calls
// of other tenants.
type payer struct{ account, region, tenant string }

// payerOf returns the payer of a call to AWS STS. The session source signs the call, so the payer
// has the session's account. The payer has no tenant, unless the tenant chose a proxy or an STS
// endpoint.
func (x plan) payerOf(source *Token, request *auth.Request) payer {
	of := payer{account: source.AccountID, region: x.sts.Region}
	if request.ProxyURL != nil || x.url != "" {
		of.tenant = request.Tenant()
	}
	return of
}

// budget limits the concurrent calls to AWS STS of one payer. Each call needs a place, and tenants
// share the places (see package share). If AWS throttles a call, a pause starts. During the pause,
// no call may start. After the pause, one call at a time may run, until AWS answers a call without
// throttling.
type budget struct {
	places    *share.Places
	callers   int       // number of callers that wait for a place or have a place
	throttled int       // number of throttled answers in a row
	resumeAt  time.Time // end of the pause
}

// errPaused ends the wait of all callers for a place when a pause starts. The wait would be
// useless, because no call may start during the pause. For each of these callers,
// [share.Places.Enter] returns errPaused.
var errPaused = errors.New("a pause has started")

// enter waits until the payer's budget has a place for a call of the tenant. Then enter returns the
// function leave. The caller makes the call, and must pass the call's error to leave.
//
// After AWS has throttled a call, the budget has a pause without calls. When a pause begins, and
// during the pause, enter returns at once. Then leave is nil, and the result pause is the time
// until the pause ends. The caller must not call AWS. The error is nil or a [*share.NoPlaceError].
func (b *budgets) enter(ctx context.Context, of payer, tenant string) (leave func(error), pause time.Duration, err error) {
	if of.account == "" {
		return func(error) {}, 0, nil // no budget, because the account of the keys is not known yet
	}
	own, pause := b.join(of)
	for pause == 0 {
		err := own.places.Enter(ctx, tenant)
		switch pause = b.pauseOf(own); {
		case err == nil && pause == 0:
			return func(err error) { b.leave(own, tenant, err) }, 0, nil
		case err == nil: // the caller got a place, but a pause started at the same moment
			own.places.Leave(tenant)
		case !errors.Is(err, errPaused):
			b.release(own)
			return nil, 0, err
		}
	}
	b.release(own)
	return nil, pause, nil
}

// join returns the payer's budget, and adds one to the budget's number of callers. If the payer has
// no budget yet, join makes a budget. The duration says how long the budget's pause still lasts.
// The duration is zero without a pause.
func (b *budgets) join(of payer) (*budget, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.known[of]
	if own == nil {
		b.sweep()
		own = &budget{places: share.New(share.Limits{Places: maxCalls, Waiting: maxWaiting, WaitingPerTenant: maxWaiting})}
		if b.known == nil {
			b.known = map[payer]*budget{}
		}
		b.known[of] = own
	}
	own.callers++
	return own, own.rest()
}

// sweep removes idle budgets if there are maxKnown budgets or more. A budget is idle if it has no
// callers and is not in a pause. The mutex mu must be locked.
func (b *budgets) sweep() {
	if len(b.known) >= maxKnown {
		maps.DeleteFunc(b.known, func(_ payer, own *budget) bool { return own.callers == 0 && own.rest() == 0 })
	}
}

// release subtracts one from the budget's number of callers, for a caller that makes no call. Only
// a budget without callers can be removed (see sweep).
func (b *budgets) release(own *budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own.callers--
}

func (b *budgets) pauseOf(own *budget) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return own.rest()
}

// rest returns how long the pause will still last. The result is zero without a pause.
func (own *budget) rest() time.Duration { return max(0, time.Until(own.resumeAt)) }

// leave records the end of a call and its result.
func (b *budgets) leave(own *budget, tenant string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own.callers--
	status, header := responseOf(err)
	paused := own.rest() > 0 // true if an earlier answer has already started a pause
	switch {
	case err != nil && isThrottle(apiCode(err), status):
		if !paused {
			own.throttled++
		}
		own.pause(remote.Answer{Status: status, Header: header}.RetryAfter())
		own.places.Resize(1)
		own.places.Dismiss(errPaused)
	case !paused && own.throttled > 0 && (err == nil || status != 0):
		own.throttled = 0
		own.places.Resize(maxCalls)
	}
	own.places.Leave(tenant)
}

// pause starts or extends the pause. The pause is at least as long as AWS asked for.
func (own *budget) pause(asked time.Duration) {
	pause := min(lastPause, firstPause<<min(own.throttled-1, 6))
	if resumeAt := time.Now().Add(max(pause, asked)); resumeAt.After(own.resumeAt) {
		own.resumeAt = resumeAt
	}
}

// throttledBefore returns the error for a call that was not made because its account is in a pause.
func (x plan) throttledBefore(of payer, pause time.Duration) error {
	return remote.Failure{
		Where: x.where(), Code: auth.CodeThrottled, RetryAfter: pause,
		What: "not asked, because STS throttles the account of " + x.session.Source, Fix: waitForQuota(of.account),
	}.Error(auth.StageExchange, x.chainOperation())
}

// crowdedOut returns the error for a call that got no place in the payer's budget. If the caller's
// context was cancelled, the error wraps the cause of the context. Otherwise, the error has
// [auth.CodeThrottled].
//
// Several tenants may use a subject that belongs to no tenant (see [auth.Subject.Lent]), and may
// see the same error. But the text of [share.NoPlaceError] says how many calls one tenant makes. So
// for such a subject, the error omits this text.
func (x plan) crowdedOut(err error, of payer, subject auth.Subject) error {
	if refused, ok := errors.AsType[*share.NoPlaceError](err); ok && subject.Lent() {
		err = refused.Err
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, share.ErrFull) {
		return fmt.Errorf("waiting for a call to AWS STS: %w", err)
	}
	f := remote.Failure{
		Where: x.where(), Code: auth.CodeThrottled, Cause: err,
		What: "not asked, because too many calls with sessions of account " + of.account + " are in progress",
		Fix:  "use fewer identities with a source in this account, or find out why STS is slow",
	}
	if of.tenant != "" {
		f.What += " over the proxy or STS endpoint of namespace " + of.tenant
		f.Fix = "check that the proxy or STS endpoint is fast enough, or use fewer identities over it"
	}
	return f.Error(auth.StageExchange, x.chainOperation())
}

// waitForQuota returns the fix for a throttled account.
func waitForQuota(account string) string {
	return "wait: one call finds out at times whether STS still throttles; see which programs use up the STS quota of account " + account
}
