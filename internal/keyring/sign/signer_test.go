package sign

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestJWT signs with each algorithm, and verifies the tokens with only the public document.
func TestJWT(t *testing.T) {
	w := newWorld(t)
	algorithms := []v1alpha1.Algorithm{v1alpha1.RS256, v1alpha1.ES256, v1alpha1.ES384}
	w.policy.Algorithms = algorithms
	w.settle(w.rotator(w.api))
	s := w.signer(w.api)
	if err := s.Ready(algorithms...); !errors.Is(err, ErrStale) {
		t.Errorf("before the first look at the ring: %v", err)
	}
	must.Succeed(t, s.Refresh(t.Context()))
	must.Succeed(t, s.Ready(algorithms...))
	v := &verifier{world: w}
	v.fetch()
	for _, a := range algorithms {
		expires := time.Now().Add(time.Minute)
		token, err := s.JWT(a, map[string]any{"sub": "somebody", "exp": expires.Unix()}, expires)
		must.Succeed(t, err)
		parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(a)})
		must.Succeed(t, err)
		key, err := s.Key(a)
		must.Succeed(t, err)
		header := parsed.Signatures[0].Header
		if header.KeyID != key.ID || header.Algorithm != string(a) || header.ExtraHeaders["typ"] != "JWT" || len(header.ExtraHeaders) != 1 {
			t.Errorf("%s: header %+v", a, header)
		}
		payload, err := parsed.Verify(v.keys.Key(key.ID)[0])
		if err != nil || !strings.Contains(string(payload), `"sub":"somebody"`) {
			t.Errorf("%s: %s, %v", a, payload, err)
		}
	}
}

// TestRingWithoutKeys checks a signer whose ring has no keys. After Refresh, Fresh must return nil,
// and MaxLife must return ErrNoKey.
func TestRingWithoutKeys(t *testing.T) {
	w := newWorld(t)
	must.Succeed(t, w.api.Create(t.Context(), &v1alpha1.KeyRing{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: keyring.IssuerRing}}))
	s := w.signer(w.api)
	if err := s.Fresh(); !errors.Is(err, ErrStale) {
		t.Errorf("before the first look at the ring: %v", err)
	}
	must.Succeed(t, s.Refresh(t.Context()))
	if err := s.Fresh(); err != nil {
		t.Errorf("a ring without keys: %v", err)
	}
	if _, err := s.MaxLife(v1alpha1.RS256); !errors.Is(err, ErrNoKey) {
		t.Errorf("a ring without keys signs: %v", err)
	}
}

// TestStaleSignerStops asserts that a signer stops signing a minute after the API server's last
// answer.
func TestStaleSignerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle(w.rotator(w.api))
		var down atomic.Bool
		s := w.signer(interceptor.NewClient(w.api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if down.Load() {
					return errors.New("connection refused")
				}
				return c.Get(ctx, key, o, opts...)
			},
		}))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx, nil) })
		time.Sleep(10 * time.Minute)
		held, err := s.Key(v1alpha1.ES256)
		if err != nil {
			t.Fatalf("while the API server answers: %v", err)
		}
		down.Store(true)
		time.Sleep(40 * time.Second)
		if _, err := sign(s); err != nil {
			t.Errorf("40 s after the last answer: %v", err)
		}
		time.Sleep(25 * time.Second)
		if _, err := sign(s); !errors.Is(err, ErrStale) {
			t.Errorf("more than a minute after: %v", err)
		}
		digest := sha256.Sum256(nil)
		if _, err := held.Sign(rand.Reader, digest[:], crypto.SHA256); !errors.Is(err, ErrStale) {
			t.Errorf("a key that a caller holds: %v", err)
		}
		down.Store(false)
		time.Sleep(20 * time.Second)
		if _, err := sign(s); err != nil {
			t.Errorf("when the API server is back: %v", err)
		}
		stop()
		running.Wait()
	})
}

// TestFresh checks for how long a signer may use what it has read of the key ring. The cases
// include a suspended machine and a changed wall clock.
func TestFresh(t *testing.T) {
	start := now()
	for _, tt := range []struct {
		name       string
		wall, mono time.Duration
		want       bool
	}{
		{"at once", 0, 0, true},
		{"a minute", time.Minute, time.Minute, true},
		{"more than a minute", time.Minute + 1, time.Minute + 1, false},
		{"suspended: the monotonic clock stood still", time.Hour, time.Second, false},
		{"wall clock set back after an hour", 0, time.Hour, false},
		{"wall clock set back far", -time.Hour, time.Second, false},
		{"wall clock set back a little", -time.Second, time.Second, true},
		{"wall clock set ahead", time.Hour, time.Second, false},
	} {
		later := instant{wall: start.wall.Add(tt.wall), mono: start.mono.Add(tt.mono)}
		if got := start.fresh(later); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestSignerChecksItsClock asserts that a signer with a wrong clock signs nothing: its tokens would
// expire at a wrong time.
func TestSignerChecksItsClock(t *testing.T) {
	w := newWorld(t)
	w.settle(w.rotator(w.api))
	s := w.signer(w.api)
	for _, skew := range []time.Duration{61 * time.Second, -61 * time.Second} {
		s.skew = func() (time.Duration, error) { return skew, nil }
		if err := s.Refresh(t.Context()); err == nil {
			t.Errorf("a clock that differs by %v", skew)
		}
	}
	s.skew = func() (time.Duration, error) { return 0, errors.New("no answer") }
	if err := s.Refresh(t.Context()); err == nil {
		t.Error("a clock that nobody has compared")
	}
	if _, err := sign(s); !errors.Is(err, ErrStale) {
		t.Errorf("signing: %v", err)
	}
}

// TestThrottledStore rotates from a former key to its successor. Meanwhile, the store gives signers
// no private halves. There are two signers:
//   - The signer prepared already has the successor's private half. It must sign with the
//     successor at once.
//   - The signer late lacks this private half. It must still sign with the former key. Its tokens
//     must expire before the former key is removed.
//
// Later, late signs with the successor, and lacks the private half of the key after it. Then the
// successor is revoked. From then on, late must sign nothing.
func TestThrottledStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.rotator(w.api)
		w.settle(r)
		store := &brokenStore{Store: r.Store}
		prepared := NewSigner(w.object(w.api), store, noSkew, slog.New(slog.DiscardHandler))
		other := &brokenStore{Store: r.Store}
		late := NewSigner(w.object(w.api), other, noSkew, slog.New(slog.DiscardHandler))
		refresh := func() {
			t.Helper()
			for _, s := range []*Signer{prepared, late} {
				must.Succeed(t, s.Refresh(t.Context()))
			}
		}
		signs := func(s *Signer) string {
			key, err := s.Key(v1alpha1.ES256)
			if err != nil {
				return err.Error()
			}
			return key.ID
		}
		first, second := w.state(v1alpha1.KeyActive)[0], w.state(v1alpha1.KeyPublished)[0]
		refresh()
		delete(late.opened, second) // as if the store had never opened this key for this signer
		store.throttled, other.throttled = true, true

		time.Sleep(w.policy.PublishDelay + time.Minute)
		w.change(func(ring *v1alpha1.KeyRing) { keyring.Rotate(ring, time.Now()) })
		w.settle(r)
		refresh()
		if got := signs(prepared); got != second {
			t.Errorf("prepared: %s signs, want %s", got, second)
		}
		if got := signs(late); got != first {
			t.Errorf("late: %s signs, want %s", got, first)
		}
		if life, err := late.MaxLife(v1alpha1.ES256); err != nil || life != w.policy.MaxLife {
			t.Errorf("right after the rotation: %v, %v", life, err)
		}
		time.Sleep(10 * time.Minute)
		refresh()
		if life, err := late.MaxLife(v1alpha1.ES256); err != nil || life != w.policy.MaxLife-10*time.Minute {
			t.Errorf("ten minutes later: %v, %v", life, err)
		}
		time.Sleep(20 * time.Minute)
		refresh()
		if got := signs(late); got != ErrNoKey.Error() {
			t.Errorf("at the end of what the former key may sign: %s", got)
		}
		other.throttled = false
		refresh()
		if got := signs(late); got != second {
			t.Errorf("late: %s signs, want %s", got, second)
		}

		delete(late.opened, w.state(v1alpha1.KeyPublished)[0])
		other.throttled = true
		w.change(func(ring *v1alpha1.KeyRing) {
			must.Succeed(t, keyring.Revoke(ring, second))
		})
		w.settle(r)
		refresh()
		if got := signs(late); got != ErrNoKey.Error() {
			t.Errorf("after the revocation: %s", got)
		}
	})
}

// TestLifeIsBounded asserts that the ring, and not the caller, bounds the life of a token.
func TestLifeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, s := w.rotator(w.api), w.signer(w.api)
		w.settle(r)
		mustSign(t, s)
		expires := time.Now().Add(w.policy.MaxLife)
		if _, err := s.JWT(v1alpha1.ES256, map[string]any{}, expires); err != nil {
			t.Error(err)
		}
		_, err := s.JWT(v1alpha1.ES256, map[string]any{}, expires.Add(time.Second))
		if life, ok := errors.AsType[*LifeError](err); !ok || life.Max != w.policy.MaxLife {
			t.Errorf("a second longer: %v", err)
		}
		// Signers allow a longer life once the status of the ring has the new MaxLife.
		r.Policy.MaxLife *= 2
		w.settle(r)
		must.Succeed(t, s.Refresh(t.Context()))
		if _, err := s.JWT(v1alpha1.ES256, map[string]any{}, expires.Add(time.Second)); err != nil {
			t.Error(err)
		}
	})
}

// TestForgedRing asserts that a key in the ring never signs if its kid does not fit its public
// half.
func TestForgedRing(t *testing.T) {
	w := newWorld(t)
	w.settle(w.rotator(w.api))
	ring := w.ring()
	for i := range ring.Status.Keys {
		if k := &ring.Status.Keys[i]; k.State == v1alpha1.KeyActive {
			k.PublicKey = ring.Status.Keys[1-i].PublicKey
		}
	}
	must.Succeed(t, w.api.Status().Update(t.Context(), ring))
	s := w.signer(w.api)
	must.Succeed(t, s.Refresh(t.Context()))
	if _, err := sign(s); !errors.Is(err, ErrNoKey) {
		t.Errorf("signing: %v", err)
	}
}

// TestNothingSecretIsPrinted asserts that a formatted or logged Key does not show its private half.
func TestNothingSecretIsPrinted(t *testing.T) {
	w := newWorld(t)
	w.settle(w.rotator(w.api))
	s := w.signer(w.api)
	mustSign(t, s)
	key, err := s.Key(v1alpha1.ES256)
	must.Succeed(t, err)
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("key", "key", key)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", key, key, key, key), logged.String()} {
		if strings.Contains(text, "private") || strings.Contains(text, "D:") || !strings.Contains(text, key.ID) {
			t.Errorf("a key prints as %s", text)
		}
	}
}

// TestSecretsRefuse asserts that List omits Secrets without a key of the ring. Errors do not quote
// the content of Secrets.
func TestSecretsRefuse(t *testing.T) {
	w := newWorld(t)
	w.settle(w.rotator(w.api))
	store := NewSecrets(w.object(w.api))
	var secrets corev1.SecretList
	must.Succeed(t, w.api.List(t.Context(), &secrets))
	for what, edit := range map[string]func(*corev1.Secret){
		"another type":       func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"no data":            func(s *corev1.Secret) { s.Data = nil },
		"something else":     func(s *corev1.Secret) { s.Data[dataKey] = []byte("topsecret") },
		"too much":           func(s *corev1.Secret) { s.Data[dataKey] = make([]byte, 1<<20) },
		"under a wrong name": func(s *corev1.Secret) { s.Name = "issuer-key-0" },
	} {
		bad := secrets.Items[0].DeepCopy()
		bad.ResourceVersion = ""
		edit(bad)
		must.Succeed(t, w.api.Delete(t.Context(), secrets.Items[0].DeepCopy()))
		must.Succeed(t, w.api.Create(t.Context(), bad))
		kept, err := store.List(t.Context())
		if err != nil || len(kept) != 1 {
			t.Errorf("%s: %d keys, %v", what, len(kept), err)
		}
		if _, _, err := store.open(t.Context(), bad); err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v", what, err)
		}
		must.Succeed(t, w.api.Delete(t.Context(), bad))
		good := secrets.Items[0].DeepCopy()
		good.ResourceVersion = ""
		must.Succeed(t, w.api.Create(t.Context(), good))
	}
}

// TestClock checks the skew that Clock calculates from the header Date.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		if _, err := c.Skew(); err == nil {
			t.Error("skew before any answer")
		}
		ahead := time.Duration(0)
		transport := c.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
			date := time.Now().Add(-ahead).UTC().Format(http.TimeFormat)
			return &http.Response{Header: http.Header{"Date": {date}}}, nil
		}))
		for _, ahead = range []time.Duration{0, 90 * time.Second, -time.Hour} {
			if _, err := transport.RoundTrip(nil); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Skew(); err != nil || (got-ahead).Abs() > time.Second {
				t.Errorf("skew %v, %v; want %v", got, err, ahead)
			}
		}
		time.Sleep(61 * time.Second)
		if _, err := c.Skew(); err == nil {
			t.Error("skew of an old answer")
		}
	})
}
