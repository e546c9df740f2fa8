package auth_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
)

// drifting is a cluster with one account that changes all the time, an informer that lags behind,
// and a cloud. Every step takes a random time. Version n of the account asks for role n%2. In some
// versions the account does not exist.
type drifting struct {
	full

	subject auth.Subject
	random  *rand.Rand

	mu      sync.Mutex
	live    int // the version in the cluster
	memory  int // the version that the informer has seen
	heard   int // the version of the last change that the cache was notified of
	deleted map[int]bool
}

func (d *drifting) version(of *int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *of
}

// pause waits for a random time up to the given maximum, or until ctx ends.
func (d *drifting) pause(ctx context.Context, most time.Duration) error {
	d.mu.Lock()
	took := time.Duration(d.random.Int64N(int64(most)))
	d.mu.Unlock()
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *drifting) account(version int) (auth.Account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deleted[version] {
		return auth.Account{}, &auth.Error{Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Err: errors.New("not found")}
	}
	// Count the earlier versions in which the account was deleted. An account that is made again
	// then has a new UID.
	uid := 0
	for v := range version {
		if d.deleted[v] {
			uid++
		}
	}
	return auth.Account{
		Subject: d.subject, UID: fmt.Sprint("uid-", uid),
		Attributes: map[string]string{roleAttribute: fmt.Sprint("role-", version%2), "version": fmt.Sprint(version)},
	}, nil
}

func (d *drifting) Lookup(context.Context, auth.Subject) (auth.Account, error) {
	return d.account(d.version(&d.memory))
}

func (d *drifting) Read(ctx context.Context, _ auth.Subject) (auth.Account, error) {
	if err := d.pause(ctx, 20*time.Millisecond); err != nil {
		return auth.Account{}, err
	}
	account, err := d.account(d.version(&d.live))
	if err != nil {
		return auth.Account{}, err
	}
	return account, d.pause(ctx, 20*time.Millisecond)
}

func (d *drifting) Prove(ctx context.Context, account auth.Account, _ auth.ProofRequest) (auth.Proof, error) {
	now, err := d.account(d.version(&d.live))
	if err != nil {
		return nil, err
	}
	if now.UID != account.UID {
		return nil, &auth.Error{Stage: auth.StageTokenRequest, Code: auth.CodeSubjectReplaced, Err: errors.New("another UID")}
	}
	return &auth.JWT{Token: auth.NewSecret("proof")}, d.pause(ctx, 20*time.Millisecond)
}

// versioned is a token of one version of the account.
type versioned struct {
	session

	version int
}

func (d *drifting) NewToken(ctx context.Context, _ auth.Proof, request *auth.Request) (auth.Token, error) {
	var version int
	if _, err := fmt.Sscan(request.Account.Attributes["version"], &version); err != nil {
		return nil, err
	}
	life := 200 * time.Millisecond // so short that tokens are refreshed during the test
	return &versioned{session{"", time.Now().Add(life)}, version}, d.pause(ctx, 100*time.Millisecond)
}

// TestNobodyGetsATokenOfThePast checks, for random orders of events, that no call gets an outdated
// token. If a call begins after the cache has learned of a change, the token must not be from
// before the change.
func TestNobodyGetsATokenOfThePast(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &drifting{
					full: full{newWorld(t)}, subject: serviceAccount(t, "a", "sa"), deleted: map[int]bool{},
					random: rand.New(rand.NewPCG(seed, 0)),
				}
				tokens := cache.New(cache.Options{MaxSize: 10})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() { // the cluster, which changes the account
					// Long and short pauses alternate, so that changes come in pairs.
					for most := 500 * time.Millisecond; d.pause(ctx, most) == nil; most = 550*time.Millisecond - most {
						d.mu.Lock()
						d.live++
						d.deleted[d.live] = d.random.IntN(4) == 0
						d.mu.Unlock()
					}
				})
				wg.Go(func() { // the informer, which follows the cluster and notifies the cache
					for d.pause(ctx, 20*time.Millisecond) == nil {
						before, _ := d.Lookup(ctx, d.subject)
						d.mu.Lock()
						d.memory = d.live
						d.mu.Unlock()
						after, _ := d.Lookup(ctx, d.subject)
						if before.UID == after.UID && before.Attributes[roleAttribute] == after.Attributes[roleAttribute] {
							continue // nothing that a token depends on has changed
						}
						tokens.Invalidate(d.subject)
						d.mu.Lock()
						d.heard = d.memory
						d.mu.Unlock()
					}
				})
				var hits, calls int
				for range 4 {
					wg.Go(func() {
						for d.pause(ctx, 10*time.Millisecond) == nil {
							heard := d.version(&d.heard)
							started := time.Now()
							token, err := auth.GetToken(ctx, d, auth.WithSubject(d.subject, d), auth.WithCache(tokens, auth.InvolvedObject{}))
							if err != nil {
								continue // account absent or replaced, or a cached failure
							}
							d.mu.Lock()
							if calls++; time.Since(started) == 0 {
								hits++
							}
							d.mu.Unlock()
							if v := token.(*versioned).version; v < heard {
								t.Errorf("a call begun when version %d was told got a token of version %d", heard, v)
							}
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Second) // wait for the exchanges, which outlive their callers
				if hits < 50 || calls-hits < 10 {
					t.Errorf("%d hits in %d calls: the test shows nothing", hits, calls)
				}
			})
		})
	}
}
