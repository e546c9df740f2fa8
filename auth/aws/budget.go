package aws

import (
	"context"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

const (
	// maxCalls limits the concurrent calls of a budget. AWS permits an account 600 calls a second
	// in a region, and a call takes some hundredths of a second. Source: IAM user guide,
	// "IAM and AWS STS quotas".
	maxCalls = 20
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
	mu    sync.Mutex // guards all fields below; never held during I/O
	known map[payer]*budget
}

// payer identifies the quota that AWS counts a call against.
type payer struct{ account, region string }

// budget limits the calls of one account in one region (see payer). A throttled answer starts a
// pause without calls. After the pause, one call tests whether AWS still throttles.
type budget struct {
	calls     int           // calls in progress
	waiting   int           // waiting callers
	changed   chan struct{} // closed when the next call ends
	throttled int           // throttled answers in a row
	resumeAt  time.Time     // end of the pause
}

// enter waits until the payer's budget has room for a call to AWS. The caller then makes the call,
// and must pass the call's error to the returned function (leave). During a pause, enter does not
// wait. It returns the rest of the pause and a nil function, and the caller must not call AWS. The
// error is nil or context.Cause(ctx).
func (b *budgets) enter(ctx context.Context, of payer) (leave func(error), pause time.Duration, err error) {
	if of.account == "" {
		return func(error) {}, 0, nil // no budget, because the account of the keys is not known yet
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

// most returns how many concurrent calls are allowed.
func (own *budget) most() int {
	if own.throttled > 0 {
		return 1
	}
	return maxCalls
}

// wait waits until a call ends. It unlocks mu while it waits.
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

// leave records the end of a call and its result.
func (b *budgets) leave(of payer, own *budget, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own.calls--
	status, header := responseOf(err)
	paused := time.Now().Before(own.resumeAt) // true if an earlier answer has already started a pause
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

// pause starts or extends the pause. The pause is at least as long as AWS asked for.
func (own *budget) pause(asked time.Duration) {
	pause := min(lastPause, firstPause<<min(own.throttled-1, 6))
	if resumeAt := time.Now().Add(max(pause, asked)); resumeAt.After(own.resumeAt) {
		own.resumeAt = resumeAt
	}
}

// forget removes a budget that has no calls, no waiting callers and no throttled answers. Callers
// hold mu.
func (b *budgets) forget(of payer, own *budget) {
	if own.calls == 0 && own.waiting == 0 && own.throttled == 0 && b.known[of] == own {
		delete(b.known, of)
	}
}

// throttledBefore returns the error for a call that was not made because its account is in a pause.
func (x plan) throttledBefore(of payer, pause time.Duration) error {
	return remote.Failure{
		Where: x.where(), Code: auth.CodeThrottled, RetryAfter: pause,
		What: "not asked, because STS throttles the account of " + x.session.Source, Fix: waitForQuota(of.account),
	}.Error(auth.StageExchange, x.chainOperation())
}

// waitForQuota returns the fix for a throttled account.
func waitForQuota(account string) string {
	return "wait: one call finds out at times whether STS still throttles; see which programs use up the STS quota of account " + account
}
