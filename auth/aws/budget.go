package aws

import (
	"context"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

const (
	// maxCalls is how many calls of one budget are under way at once. AWS permits an account 600
	// calls a second in a region, and a call takes some hundredths of a second. Source: IAM user
	// guide, "IAM and AWS STS quotas".
	maxCalls = 20
	// firstPause follows the first throttled answer, and doubles with each further one.
	firstPause = time.Second
	// lastPause bounds the doubled pause. AWS can ask for a longer one.
	lastPause = time.Minute
)

// budgets bound the calls to AWS STS that are signed with a session or with keys. AWS counts these
// calls for the account of the signer and the region. So all identities with sources in one account
// share a budget, and other accounts never wait for it. The zero value is ready for use.
type budgets struct {
	mu    sync.Mutex // guards all below; never held during I/O
	known map[payer]*budget
}

// payer is for whom AWS counts a call.
type payer struct{ account, region string }

// budget bounds the calls for one payer. A throttled answer begins a pause without calls. After
// the pause one call finds out whether AWS still throttles.
type budget struct {
	calls     int           // under way
	waiting   int           // callers that wait for a place
	changed   chan struct{} // closed after the next call
	throttled int           // answers in a row
	resumeAt  time.Time     // end of the pause
}

// enter waits for the turn of a call. The caller passes the result of the call to leave. During a
// pause enter refuses at once, and pause is what is left of it. The error is the cause of ctx's
// end.
func (b *budgets) enter(ctx context.Context, of payer) (leave func(error), pause time.Duration, err error) {
	if of.account == "" {
		return func(error) {}, 0, nil // AWS has not said yet whose keys these are
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.known[of]
	if own == nil {
		own = &budget{changed: make(chan struct{})}
		if b.known == nil {
			b.known = map[payer]*budget{}
		}
		b.known[of] = own
	}
	defer b.forget(of, own)
	for {
		if pause := time.Until(own.resumeAt); pause > 0 {
			return nil, pause, nil
		}
		if own.calls < own.most() {
			own.calls++
			return func(err error) { b.leave(of, own, err) }, 0, nil
		}
		if err := b.wait(ctx, own); err != nil {
			return nil, 0, err
		}
	}
}

// most is how many calls may be under way.
func (own *budget) most() int {
	if own.throttled > 0 {
		return 1
	}
	return maxCalls
}

// wait waits for the end of a call. It unlocks mu meanwhile.
func (b *budgets) wait(ctx context.Context, own *budget) error {
	changed := own.changed
	own.waiting++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		own.waiting--
	}()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave ends a call with its result.
func (b *budgets) leave(of payer, own *budget, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own.calls--
	status, header := responseOf(err)
	paused := time.Now().Before(own.resumeAt) // an earlier answer began the pause
	switch {
	case err != nil && isThrottle(apiCode(err), status):
		if !paused {
			own.throttled++
		}
		own.pause(remote.Answer{Status: status, Header: header}.RetryAfter())
	case !paused && (err == nil || status != 0):
		own.throttled = 0
	}
	close(own.changed)
	own.changed = make(chan struct{})
	b.forget(of, own)
}

// pause begins or prolongs the pause.
func (own *budget) pause(asked time.Duration) {
	pause := lastPause
	if doublings := own.throttled - 1; doublings < 6 {
		pause = min(lastPause, firstPause<<doublings)
	}
	if resumeAt := time.Now().Add(max(pause, asked)); resumeAt.After(own.resumeAt) {
		own.resumeAt = resumeAt
	}
}

// forget removes a budget that says nothing. Callers hold mu.
func (b *budgets) forget(of payer, own *budget) {
	if own.calls == 0 && own.waiting == 0 && own.throttled == 0 && b.known[of] == own {
		delete(b.known, of)
	}
}

// throttledBefore is the error of a call that is not made during a pause of its account.
func (x plan) throttledBefore(of payer, pause time.Duration) error {
	f := remote.Failure{
		Where: x.where(), Code: auth.CodeThrottled, RetryAfter: pause,
		What: "not asked, because STS throttles the account of " + x.session.Source, Fix: waitForQuota(of.account),
	}
	return f.Error(auth.StageExchange, x.chainOperation())
}

// waitForQuota is the fix for throttling of an account.
func waitForQuota(account string) string {
	return "wait: one call finds out at times whether STS still throttles; see which programs use up the STS quota of account " + account
}
