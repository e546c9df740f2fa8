//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package sign

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// story simulates half an hour of a ring. The ring is made. Its keys rotate by schedule and on
// demand. Old keys are removed. Two replicas sign all the time. A verifier caches the document for
// the whole publish delay. It must accept all tokens until they expire. The n-th write of the first
// rotator gets no answer; see [world.process] for n and lives. If this rotator dies, a second
// rotator takes over. story returns the number of writes of the first rotator.
func story(t *testing.T, n int, lives bool) (writes int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.PublishDelay, w.policy.RotationPeriod, w.policy.MaxLife = 2*time.Minute, 5*time.Minute, 2*time.Minute
		p := w.process(n, lives)
		rotator := w.rotator(p)
		signers := []*Signer{w.signer(w.api), w.signer(w.api)}
		load := newTraffic(w)
		for at := range int(30 * time.Minute / tick) {
			if _, err := rotator.Step(t.Context()); err != nil {
				if !errors.Is(err, errNoAnswer) {
					t.Fatalf("tick %d: %v", at, err)
				}
				if p.dead {
					time.Sleep(tick) // time in which another process gets the lease
					rotator = w.rotator(w.api)
				}
			}
			if at == 30 {
				w.change(func(r *v1alpha1.KeyRing) { keyring.Rotate(r, time.Now()) })
			}
			// One signer reads the ring only at every third tick, so its view is older.
			if at%3 == 0 {
				_ = signers[0].Refresh(t.Context())
			}
			_ = signers[1].Refresh(t.Context())
			for _, s := range signers {
				if err := load.sign(s); err != nil && at > 10 {
					t.Fatalf("tick %d: %v", at, err)
				}
			}
			load.wait()
			if active := w.state(v1alpha1.KeyActive); len(active) > 1 {
				t.Fatalf("tick %d: several keys sign: %v", at, active)
			}
		}
		if len(load.kids) < 4 {
			t.Errorf("only %d keys have signed in half an hour", len(load.kids))
		}
		if removed := w.state(v1alpha1.KeyRemoved); len(removed) == 0 {
			t.Error("no key was removed in half an hour")
		}
		writes = p.writes
		time.Sleep(orphanAge + time.Minute)
		w.settle(w.rotator(w.api))
		var secrets corev1.SecretList
		if err := w.api.List(t.Context(), &secrets); err != nil {
			t.Fatal(err)
		}
		if public := len(w.ring().Status.Keys) - len(w.state(v1alpha1.KeyRemoved)); len(secrets.Items) != public {
			t.Errorf("%d Secrets for %d keys", len(secrets.Items), public)
		}
	})
	return writes
}

// TestRotationUnderLoad runs story without a failure. Then it runs story twice for each write of
// the rotator. In one run, the rotator dies before the write. In the other run, the answer is lost.
func TestRotationUnderLoad(t *testing.T) {
	writes := story(t, 0, false)
	if writes < 15 {
		t.Fatalf("the story has only %d writes", writes)
	}
	for n := 1; n <= writes; n++ {
		t.Run(fmt.Sprintf("killed before write %d", n), func(t *testing.T) { story(t, n, false) })
		t.Run(fmt.Sprintf("answer of write %d lost", n), func(t *testing.T) { story(t, n, true) })
	}
}
