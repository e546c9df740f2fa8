package sign

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// tick is the time between two steps of a simulation, for example in [story].
const tick = 20 * time.Second

// traffic has the tokens of signers, and a verifier that caches the public document for the whole
// publish delay. The verifier must accept all tokens until they expire.
type traffic struct {
	t        *testing.T
	verifier *verifier
	live     []liveToken
	kids     map[string]bool // kids of the keys that have signed
}

type liveToken struct {
	text    string
	expires time.Time
}

func newTraffic(w *world) *traffic {
	return &traffic{t: w.t, verifier: &verifier{world: w, life: w.policy.PublishDelay}, kids: map[string]bool{}}
}

// sign signs a token with the longest life that the signer's key allows. It returns the signer's
// error.
func (f *traffic) sign(s *Signer) error {
	f.t.Helper()
	key, err := s.Key(v1alpha1.ES256)
	if err != nil {
		return err
	}
	expires := time.Now().Add(key.MaxLife)
	text, err := s.JWT(v1alpha1.ES256, map[string]any{"exp": expires.Unix()}, expires)
	if err != nil {
		return err
	}
	if err := f.verifier.verify(text); err != nil {
		f.t.Fatalf("a new token is refused: %v", err)
	}
	f.live, f.kids[key.ID] = append(f.live, liveToken{text, expires}), true
	return nil
}

// wait waits for one tick. Then it verifies and drops every token that expires within the next
// tick.
func (f *traffic) wait() {
	f.t.Helper()
	time.Sleep(tick)
	f.live = slices.DeleteFunc(f.live, func(token liveToken) bool {
		ends := time.Until(token.expires) <= tick
		if ends {
			if err := f.verifier.verify(token.text); err != nil {
				f.t.Fatalf("a token that expires soon is refused: %v", err)
			}
		}
		return ends
	})
}

// TestTwoLeaders runs two rotators on one ring at once. This can happen when the lease is lost in
// the middle of a step. The ring must get one active key and one successor, and no others.
func TestTwoLeaders(t *testing.T) {
	w := newWorld(t)
	var both sync.WaitGroup
	for range 2 {
		r := w.rotator(w.api)
		both.Go(func() {
			for range 20 {
				_, _ = r.Step(t.Context()) // the errors are conflicts
			}
		})
	}
	both.Wait()
	w.settle(w.rotator(w.api))
	if keys := w.ring().Status.Keys; len(keys) != 2 {
		t.Errorf("%d keys, want one to sign and one to succeed it", len(keys))
	}
	if active := w.state(v1alpha1.KeyActive); len(active) != 1 {
		t.Errorf("active: %v", active)
	}
}

// TestTwoVersions lets replicas of two versions rotate the ring alternately, as during a long
// upgrade. The policy of the newer version has one more algorithm and longer times. Verifiers must
// accept all tokens.
func TestTwoVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.PublishDelay, w.policy.RotationPeriod, w.policy.MaxLife = 2*time.Minute, 5*time.Minute, 2*time.Minute
		older, newer := w.rotator(w.api), w.rotator(w.api)
		newer.Policy.Algorithms = []v1alpha1.Algorithm{v1alpha1.ES256, v1alpha1.ES384}
		newer.Policy.PublishDelay, newer.Policy.RotationPeriod, newer.Policy.MaxLife = 3*time.Minute, 7*time.Minute, 5*time.Minute
		w.settle(older)
		load, s := newTraffic(w), w.signer(w.api)
		for at := range int(time.Hour / tick) {
			leader := older
			if at/5%2 == 1 {
				leader = newer
			}
			if _, err := leader.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
			must.Succeed(t, s.Refresh(t.Context()))
			must.Succeed(t, load.sign(s))
			load.wait()
		}
		if len(load.kids) < 4 {
			t.Errorf("only %d keys have signed in an hour", len(load.kids))
		}
		w.settle(newer)
		time.Sleep(newer.Policy.PublishDelay + time.Second)
		w.settle(newer)
		must.Succeed(t, s.Refresh(t.Context()))
		if err := s.Ready(newer.Policy.Algorithms...); err != nil {
			t.Errorf("after the upgrade: %v", err)
		}
	})
}

// TestSlowDocument makes the read of the public document slow. The publish delay of a key must
// begin only after the read has found the key in the document. Just before that, verifiers may have
// cached an older document without the key.
func TestSlowDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.rotator(w.api)
		seen := map[string]time.Time{}
		r.Probe = func(ctx context.Context) (*keyring.Document, error) {
			time.Sleep(10 * time.Second)
			document, err := w.probe(ctx)
			if err == nil {
				for _, kid := range document.KIDs {
					if seen[kid].IsZero() {
						seen[kid] = time.Now()
					}
				}
			}
			return document, err
		}
		w.settle(r)
		for _, k := range w.ring().Status.Keys {
			if k.PublishedAt.Time.Before(seen[k.KID]) {
				t.Errorf("key %s is published since %s, and nobody saw it before %s", k.KID, k.PublishedAt, seen[k.KID])
			}
		}
	})
}

// TestLostLeaseInTransition stops a process between its observation and its write. Another process
// rotates meanwhile. The write of the first process must fail.
func TestLostLeaseInTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle(w.rotator(w.api))
		time.Sleep(25 * time.Minute)
		w.change(func(r *v1alpha1.KeyRing) { keyring.Rotate(r, time.Now()) })
		var states []v1alpha1.RingKey
		slow := interceptor.NewClient(w.api, interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				w.settle(w.rotator(w.api))
				states = w.ring().Status.Keys
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
		})
		if _, err := w.rotator(slow).Step(t.Context()); err == nil {
			t.Error("the second write succeeded")
		}
		if now := w.ring().Status.Keys; fmt.Sprint(now) != fmt.Sprint(states) {
			t.Error("the second process has changed the ring")
		}
	})
}

// TestSuspendedInTransition asserts that a step fails if the computer slept after the step had made
// its observations.
func TestSuspendedInTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.rotator(w.api)
		r.Probe = func(ctx context.Context) (*keyring.Document, error) {
			time.Sleep(2 * time.Minute)
			return w.probe(context.WithoutCancel(ctx))
		}
		if _, err := r.Step(t.Context()); err == nil || !strings.Contains(err.Error(), "too old") {
			t.Errorf("Step() = %v", err)
		}
		if keys := w.ring().Status.Keys; len(keys) != 0 {
			t.Errorf("the ring has %d keys", len(keys))
		}
	})
}

// TestOrphansAreDestroyed asserts that private halves whose keys are not in the ring are not used,
// and are destroyed after orphanAge.
func TestOrphansAreDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.rotator(w.api)
		w.settle(r)
		planted, err := r.Store.Create(t.Context(), w.ring().UID, v1alpha1.ES256)
		must.Succeed(t, err)
		w.settle(r)
		if _, err := r.Store.Open(t.Context(), planted.ID); err != nil {
			t.Errorf("a young private half is gone: another step may be about to name it: %v", err)
		}
		if slices.ContainsFunc(w.ring().Status.Keys, func(k v1alpha1.RingKey) bool { return k.KID == planted.ID }) {
			t.Error("the ring has adopted a key that somebody has put there")
		}
		time.Sleep(6 * time.Minute)
		w.settle(r)
		if _, err := r.Store.Open(t.Context(), planted.ID); err == nil {
			t.Error("an old private half without a ring is still there")
		}
	})
}

// TestSkewStopsRotation asserts that a large clock skew stops both the rotation and the removal of
// orphaned private halves.
func TestSkewStopsRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.rotator(w.api)
		w.settle(r)
		planted, err := r.Store.Create(t.Context(), w.ring().UID, v1alpha1.ES256)
		must.Succeed(t, err)
		active := w.state(v1alpha1.KeyActive)
		time.Sleep(2 * time.Hour)
		r.Skew = func() (time.Duration, error) { return 2 * time.Hour, nil }
		w.settle(r)
		if got := w.state(v1alpha1.KeyActive); !slices.Equal(got, active) {
			t.Errorf("active is %v, was %v", got, active)
		}
		if _, err := r.Store.Open(t.Context(), planted.ID); err != nil {
			t.Error(err)
		}
		if c := meta.FindStatusCondition(w.ring().Status.Conditions, v1alpha1.ConditionCanRotate); c.Reason != v1alpha1.ReasonClockSkew {
			t.Errorf("CanRotate: %+v", c)
		}
		r.Skew = func() (time.Duration, error) { return 0, errors.New("no answer") }
		if _, err := r.Step(t.Context()); err == nil {
			t.Error("a step without knowing the API server's time")
		}
	})
}

// TestLostSecret deletes the Secret of a key. Then it restores the Secret, first with a wrong key
// and then with the right key. The ring must report a foreign key until the right key is back.
func TestLostSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, s := w.rotator(w.api), w.signer(w.api)
		w.settle(r)
		must.Succeed(t, s.Refresh(t.Context()))
		secrets := NewSecrets(w.object(w.api))
		active, standby := w.state(v1alpha1.KeyActive)[0], w.state(v1alpha1.KeyPublished)[0]
		var stored corev1.Secret
		name := client.ObjectKey{Namespace: namespace, Name: secrets.name(active)}
		must.Succeed(t, w.api.Get(t.Context(), name, &stored))
		if stored.Immutable == nil || !*stored.Immutable || stored.Type != secretType {
			t.Errorf("the Secret can be edited: %+v", stored.Immutable)
		}
		reason := func() string {
			w.settle(r)
			return meta.FindStatusCondition(w.ring().Status.Conditions, v1alpha1.ConditionCanRotate).Reason
		}

		must.Succeed(t, w.api.Delete(t.Context(), stored.DeepCopy()))
		if got := reason(); got != v1alpha1.ReasonForeignKey {
			t.Errorf("the Secret is deleted: %s", got)
		}
		must.Succeed(t, s.Refresh(t.Context()))
		if _, err := sign(s); err != nil {
			t.Errorf("a running signer stopped with its Secret: %v", err)
		}
		fresh := w.signer(w.api)
		must.Succeed(t, fresh.Refresh(t.Context()))
		if _, err := sign(fresh); !errors.Is(err, ErrNoKey) {
			t.Errorf("a started signer: %v", err)
		}

		other := stored.DeepCopy()
		other.ResourceVersion, other.UID = "", ""
		var standbySecret corev1.Secret
		must.Succeed(t, w.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: secrets.name(standby)}, &standbySecret))
		other.Data = standbySecret.Data
		must.Succeed(t, w.api.Create(t.Context(), other))
		if got := reason(); got != v1alpha1.ReasonForeignKey {
			t.Errorf("the Secret has another key: %s", got)
		}
		if _, err := secrets.Open(t.Context(), active); err == nil {
			t.Error("another key was opened in place of the active one")
		}
		must.Succeed(t, w.api.Delete(t.Context(), other))

		restored := stored.DeepCopy()
		restored.ResourceVersion, restored.UID = "", ""
		must.Succeed(t, w.api.Create(t.Context(), restored))
		if got := reason(); got != "Succeeded" {
			t.Errorf("the Secret is restored: %s", got)
		}
	})
}

// TestRestoredRing restores an old ring, as a backup of the cluster does. A process that has only
// read the ring must notice this, and so must a process that has written the ring.
func TestRestoredRing(t *testing.T) {
	for name, restarted := range map[string]bool{"wrote the ring": false, "has only read the ring": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoredRing(t, restarted) })
		})
	}
}

func restoredRing(t *testing.T, restarted bool) {
	t.Helper()
	w := newWorld(t)
	r := w.rotator(w.api)
	w.settle(r)
	yesterday := w.ring().DeepCopy()
	time.Sleep(25 * time.Minute)
	w.change(func(ring *v1alpha1.KeyRing) { keyring.Rotate(ring, time.Now()) })
	w.settle(r)
	leaked := w.state(v1alpha1.KeyRetiring)[0]
	w.change(func(ring *v1alpha1.KeyRing) {
		must.Succeed(t, keyring.Revoke(ring, leaked))
	})
	w.settle(r)
	before := w.ring()
	if restarted {
		r = w.rotator(w.api)
		w.settle(r)
		if w.ring().ResourceVersion != before.ResourceVersion {
			t.Fatal("the new process has written the ring")
		}
	}

	back := before.DeepCopy()
	back.Spec, back.Status = yesterday.Spec, yesterday.Status
	must.Succeed(t, w.api.Update(t.Context(), back))
	back.Status = yesterday.Status
	must.Succeed(t, w.api.Status().Update(t.Context(), back))
	r.Policy.Revoked = []string{leaked}
	w.settle(r)
	if slices.Contains(w.state(v1alpha1.KeyActive), leaked) {
		t.Error("the backup has brought a revoked key back")
	}
	if got := w.ring().Status.Revision; got <= before.Status.Revision {
		t.Errorf("revision %d, but it was %d before the backup", got, before.Status.Revision)
	}
}

// TestReinstalled deletes the ring and makes a new ring. The first key must wait for the delay,
// because verifiers have cached the old keys.
func TestReinstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle(w.rotator(w.api))
		old := w.ring()
		must.Succeed(t, w.api.Delete(t.Context(), old))
		r := w.rotator(w.api)
		w.settle(r)
		if active := w.state(v1alpha1.KeyActive); len(active) != 0 || !w.ring().Status.OtherKeysSeen {
			t.Errorf("active at once: %v", active)
		}
		time.Sleep(w.policy.PublishDelay)
		w.settle(r)
		if active := w.state(v1alpha1.KeyActive); len(active) != 1 {
			t.Errorf("active after the delay: %v", active)
		}
	})
}

// TestReinstalledWithoutATrace makes a ring after the Secrets and the public document of an earlier
// ring were deleted. Only the status of identities shows whether services still know earlier keys
// of the issuer. If they do, the new ring's first key must wait for the publish delay.
func TestReinstalledWithoutATrace(t *testing.T) {
	for _, tt := range []struct {
		name    string
		issuers []string
		waits   bool
	}{
		{"nobody knows a key", nil, false},
		{"services know keys of the issuer", []string{"https://other.example", issuer}, true},
		{"services know keys of another issuer", []string{"https://other.example"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.rotator(w.api)
				var said strings.Builder
				r.Log = slog.New(slog.NewTextHandler(&said, nil))
				var asked types.UID
				r.Former = func(_ context.Context, ring types.UID) ([]string, error) { asked = ring; return tt.issuers, nil }
				w.settle(r)
				if asked != w.ring().UID {
					t.Errorf("asked for the ring %q", asked)
				}
				if waits := len(w.state(v1alpha1.KeyActive)) == 0; waits != tt.waits {
					t.Errorf("the first key waits: %v, want %v", waits, tt.waits)
				}
				if c := meta.FindStatusCondition(w.ring().Status.Conditions, "Ready"); strings.Contains(c.Message, "former installation") != tt.waits {
					t.Errorf("Ready: %s", c.Message)
				}
				for _, former := range tt.issuers {
					if !strings.Contains(said.String(), former) {
						t.Errorf("the log does not name %s: %s", former, said.String())
					}
				}
				time.Sleep(w.policy.PublishDelay)
				r.Former = func(context.Context, types.UID) ([]string, error) { return nil, errors.New("asked again") }
				w.settle(r)
				if len(w.state(v1alpha1.KeyActive)) != 1 {
					t.Error("no key signs after the delay")
				}
			})
		})
	}
	w := newWorld(t)
	r := w.rotator(w.api)
	r.Former = func(context.Context, types.UID) ([]string, error) { return nil, errors.New("forbidden") }
	if _, err := r.Step(t.Context()); err == nil || len(w.ring().Status.Keys) != 0 {
		t.Errorf("a key is made without knowing what services remember: %v", err)
	}
}

// TestUnreachableDocument asserts that the rotation waits for the document, says so in a condition,
// and continues when the document is back.
func TestUnreachableDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.rotator(w.api)
		w.settle(r)
		first := w.state(v1alpha1.KeyActive)
		w.unreachable = true
		time.Sleep(3 * time.Hour)
		w.settle(r)
		if got := w.state(v1alpha1.KeyActive); !slices.Equal(got, first) {
			t.Errorf("rotated to %v", got)
		}
		if c := meta.FindStatusCondition(w.ring().Status.Conditions, v1alpha1.ConditionCanRotate); c.Reason != v1alpha1.ReasonDocumentUnreachable {
			t.Errorf("CanRotate: %+v", c)
		}
		w.unreachable = false
		w.settle(r)
		if got := w.state(v1alpha1.KeyActive); slices.Equal(got, first) {
			t.Error("not rotated when the document is back")
		}
	})
}

// TestEmergencyRevocation revokes a leaked key. A verifier has cached this key and its successor,
// and reads the document again only if it meets an unknown kid. At first the successor signs. The
// verifier knows the successor, so it does not read the document, and still accepts the leaked key.
// After the publish delay, a new key signs. The verifier must then read the document again and drop
// the leaked key.
func TestEmergencyRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, s := w.rotator(w.api), w.signer(w.api)
		w.settle(r)
		lazy := &verifier{world: w, rereads: true}
		stolen := mustSign(t, s)
		must.Succeed(t, lazy.verify(stolen))
		leaked, standby := w.state(v1alpha1.KeyActive)[0], w.state(v1alpha1.KeyPublished)[0]
		held, err := s.Key(v1alpha1.ES256)
		must.Succeed(t, err)

		consequences, err := keyring.ConsequencesOf(w.ring(), leaked, time.Now())
		if err != nil || consequences.Successor != standby || consequences.Outage {
			t.Errorf("consequences: %+v, %v", consequences, err)
		}
		w.change(func(ring *v1alpha1.KeyRing) {
			must.Succeed(t, keyring.Revoke(ring, leaked))
		})
		w.settle(r)
		if got := w.state(v1alpha1.KeyActive); !slices.Equal(got, []string{standby}) {
			t.Fatalf("active: %v, want the standby", got)
		}
		ring, err := keyring.Parse(&w.ring().Status)
		if err != nil || ring.Accepts(leaked) || !ring.Accepts(standby) {
			t.Errorf("the ring accepts the revoked key: %v", err)
		}
		if _, err := NewSecrets(w.object(w.api)).Open(t.Context(), leaked); err == nil {
			t.Error("the private half of the revoked key is still there")
		}
		if err := lazy.verify(mustSign(t, s)); err != nil {
			t.Errorf("the standby's token is refused: %v", err)
		}
		if _, err := held.Sign(nil, make([]byte, 32), nil); !errors.Is(err, ErrReplaced) {
			t.Errorf("the revoked key signs: %v", err)
		}
		if err := lazy.verify(stolen); err != nil {
			t.Error("the test's verifier has no reason to read the document: it proves nothing")
		}

		time.Sleep(w.policy.PublishDelay)
		w.settle(r)
		if err := lazy.verify(mustSign(t, s)); err != nil {
			t.Errorf("after the second step: %v", err)
		}
		if err := lazy.verify(stolen); err == nil {
			t.Error("after the second step a verifier accepts the revoked key")
		}
	})
}

// brokenStore is a store whose vault does not answer (silent), makes no ES256 keys (full), or opens
// no keys (throttled).
type brokenStore struct {
	Store
	silent, full, throttled bool
}

func (s *brokenStore) Open(ctx context.Context, kid string) (crypto.Signer, error) {
	if s.throttled {
		return nil, errors.New("a quota is exhausted")
	}
	return s.Store.Open(ctx, kid)
}

func (s *brokenStore) List(ctx context.Context) ([]Kept, error) {
	if s.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.List(ctx)
}

func (s *brokenStore) Create(ctx context.Context, ring types.UID, algorithm v1alpha1.Algorithm) (keyring.Key, error) {
	if s.full && algorithm == v1alpha1.ES256 {
		return keyring.Key{}, errors.New("a quota is exhausted")
	}
	return s.Store.Create(ctx, ring, algorithm)
}

// TestRevocationWaitsForNothing revokes a key while the vault and the probe do not answer. The
// revocation must take at most ten seconds.
func TestRevocationWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.rotator(w.api)
		w.settle(r)
		leaked, standby := w.state(v1alpha1.KeyActive), w.state(v1alpha1.KeyPublished)
		r.Store = &brokenStore{Store: r.Store, silent: true}
		r.Probe = func(ctx context.Context) (*keyring.Document, error) { <-ctx.Done(); return nil, ctx.Err() }
		w.change(func(ring *v1alpha1.KeyRing) {
			must.Succeed(t, keyring.Revoke(ring, leaked[0]))
		})
		began := time.Now()
		if changed, err := r.Step(t.Context()); err != nil || !changed {
			t.Errorf("Step() = %v, %v", changed, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if got := w.state(v1alpha1.KeyRevoked); !slices.Equal(got, leaked) {
			t.Errorf("revoked: %v, want %v", got, leaked)
		}
		if got := w.state(v1alpha1.KeyActive); !slices.Equal(got, standby) {
			t.Errorf("active: %v, want the standby %v", got, standby)
		}
	})
}

// TestStatesChangeWithoutNewKeys asserts that existing keys change their states while no ES256 key
// can be made. Private halves that nobody needs must be destroyed. Keys of another algorithm must
// be made only once, although later steps try again to make the ES256 key.
func TestStatesChangeWithoutNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable = true
		r := w.rotator(w.api)
		w.settle(r)
		pending := w.state(v1alpha1.KeyPending)
		store := &brokenStore{Store: r.Store, full: true}
		r.Store = store
		r.Policy.Algorithms = []v1alpha1.Algorithm{v1alpha1.ES256, v1alpha1.ES384}
		w.change(func(ring *v1alpha1.KeyRing) {
			must.Succeed(t, keyring.Revoke(ring, pending[0]))
		})
		w.unreachable = false
		var err error
		for range 10 {
			_, err = r.Step(t.Context())
		}
		if err == nil {
			t.Error("a step does not say that a key cannot be made")
		}
		if got := w.state(v1alpha1.KeyRevoked); !slices.Equal(got, pending[:1]) {
			t.Errorf("revoked: %v, want %v", got, pending[:1])
		}
		if got := w.state(v1alpha1.KeyActive); !slices.Contains(got, pending[1]) {
			t.Errorf("active: %v, want %s among them", got, pending[1])
		}
		if _, err := store.Open(t.Context(), pending[0]); err == nil {
			t.Error("the private half of the revoked key is still there")
		}
		if kept, err := store.List(t.Context()); err != nil || len(kept) != 3 {
			t.Errorf("%d private halves, %v; want one of ES256 and two of ES384", len(kept), err)
		}
		before := w.ring().Status.Revision
		if _, err := r.Step(t.Context()); err == nil || w.ring().Status.Revision != before {
			t.Errorf("a ring at rest was written: %v", err)
		}
	})
}

// TestChangesHappenAtOnce revokes the active key in a running token server that is notified of each
// change of the ring. Rotator and signer must not wait until their interval has passed.
func TestChangesHappenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle(w.rotator(w.api))
		toSigner, toRotator := make(chan struct{}, 1), make(chan struct{}, 1)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		s, r := w.signer(w.api), w.rotator(w.api)
		running.Go(func() { s.Run(ctx, toSigner) })
		running.Go(func() { r.Run(ctx, toRotator) })
		synctest.Wait()
		leaked, err := s.Key(v1alpha1.ES256)
		must.Succeed(t, err)
		began := time.Now()
		w.change(func(ring *v1alpha1.KeyRing) {
			must.Succeed(t, keyring.Revoke(ring, leaked.ID))
		})
		toRotator <- struct{}{}
		synctest.Wait()
		if revoked := w.state(v1alpha1.KeyRevoked); !slices.Equal(revoked, []string{leaked.ID}) {
			t.Errorf("revoked: %v", revoked)
		}
		toSigner <- struct{}{}
		synctest.Wait()
		if _, err := leaked.Sign(nil, make([]byte, 32), nil); !errors.Is(err, ErrReplaced) {
			t.Errorf("the revoked key signs: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		stop()
		running.Wait()
	})
}

// sign signs a token with a life of one minute.
func sign(s *Signer) (string, error) {
	expires := time.Now().Add(time.Minute)
	return s.JWT(v1alpha1.ES256, map[string]any{"exp": expires.Unix()}, expires)
}

func mustSign(t *testing.T, s *Signer) string {
	t.Helper()
	must.Succeed(t, s.Refresh(t.Context()))
	token, err := sign(s)
	must.Succeed(t, err)
	return token
}
