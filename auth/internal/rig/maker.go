package rig

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/providertest"
)

// Maker makes proofs that serve as credentials without an exchange, and counts them. It provides
// Prove and Cloud of a [providertest.Harness].
type Maker struct {
	// Make makes a proof without defects.
	Make func(auth.Account, auth.ProofRequest) (auth.Proof, error)

	made atomic.Int32
	slow atomic.Bool
}

// Prove implements Prove of a [providertest.Harness].
func (m *Maker) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest, _ providertest.Defect) (auth.Proof, error) {
	m.made.Add(1)
	if m.slow.Load() {
		select {
		case <-time.After(providertest.SlowAnswer):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return m.Make(account, request)
}

// Exchanges implements [providertest.Cloud].
func (m *Maker) Exchanges() int { return int(m.made.Load()) }

// Trouble implements [providertest.Cloud].
func (m *Maker) Trouble(_ *testing.T, trouble providertest.Trouble) (end func()) {
	m.slow.Store(trouble == providertest.Slow)
	return func() { m.slow.Store(false) }
}

// Revoke implements [providertest.Cloud]. It does nothing: no cloud is asked for the credential, so
// there is no trust to withdraw.
func (*Maker) Revoke(*testing.T, auth.Account) (restore func()) { return func() {} }
