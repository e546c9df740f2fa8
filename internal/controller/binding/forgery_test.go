package binding_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/internal/controller/binding"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestForgedSecret checks that somebody who may write the Secret cannot make the controller accept
// a forged credential. The attacker has the controller's program and all its inputs except the
// status. A second controller, with the attacker's token server, writes a perfect Secret for the
// same binding.
func TestForgedSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newIdentity(), newBinding())
		w.reconcile()
		own := w.secret().DeepCopy()
		attacker := newWorld(t, newIdentity(), newBinding())
		for _, c := range []struct {
			name string
			life time.Duration // life of the forged token
			edit func(forged *corev1.Secret)
		}{
			{"the whole Secret", 48 * time.Hour, func(*corev1.Secret) {}},
			{"a short one", 10 * time.Minute, func(*corev1.Secret) {}},
			{"the token alone", 48 * time.Hour, func(forged *corev1.Secret) { forged.Annotations, forged.Labels = own.Annotations, own.Labels }},
			{"all but the token", 48 * time.Hour, func(forged *corev1.Secret) { forged.Data[delivery.TokenKey] = own.Data[delivery.TokenKey] }},
		} {
			attacker.server.life = c.life
			attacker.editBinding(renewNow)
			time.Sleep(time.Second) // so that the new token has a later issue time
			attacker.reconcile()
			forged := attacker.secret()
			c.edit(forged)
			before := len(w.server.requests)
			now := w.secret()
			now.Data, now.Annotations, now.Labels = forged.Data, forged.Annotations, forged.Labels
			// Use the controller's field manager, as if the controller had written the Secret.
			must.Succeed(t, w.kube.Update(t.Context(), now, client.FieldOwner("lanyard-workload-identity-binding")))
			same := string(forged.Data[delivery.TokenKey]) == string(own.Data[delivery.TokenKey])
			o, _ := w.reconcile()
			if now := w.secret(); !same && (string(now.Data[delivery.TokenKey]) == string(forged.Data[delivery.TokenKey]) || len(w.server.requests) != before+1) {
				t.Errorf("%s: the forged token stays", c.name)
			}
			if left := time.Until(o.Status.ExpiresAt.Time); left > time.Hour {
				t.Errorf("%s: the status believes in %s", c.name, left)
			}
			own = w.secret().DeepCopy()
		}
	})
}

func renewNow(o *identityv1.WorkloadIdentityBinding) {
	o.Annotations = map[string]string{"lanyard.dev/operation": "renew-workload-identity-token"}
}

// TestOddLives checks that a token with an impossible lifetime is not written.
func TestOddLives(t *testing.T) {
	for _, life := range []time.Duration{-time.Hour, time.Nanosecond, 49 * time.Hour} {
		w := newWorld(t, newIdentity(), newBinding())
		w.server.life = life
		if o, _ := w.reconcile(); ready(o).Reason != string(auth.CodeResponseInvalid) || w.secret() != nil {
			t.Errorf("a life of %s: %+v", life, ready(o))
		}
	}
}

// TestSessionIsRenewed checks which changes make the controller renew an AWS session. The session's
// lifetime is in annotations of the Secret.
func TestSessionIsRenewed(t *testing.T) {
	const issued, expires = "workloadidentity.lanyard.dev/issued-at", "workloadidentity.lanyard.dev/expires-at"
	annotate := func(key string, value func(now time.Time) string) func(*world) {
		return func(w *world) {
			w.editSecret(func(s *corev1.Secret) { s.Annotations[key] = value(time.Now().UTC()) })
		}
	}
	in := func(d time.Duration) func(time.Time) string {
		return func(now time.Time) string { return now.Add(d).Format(time.RFC3339) }
	}
	for _, c := range []struct {
		name     string
		change   func(*world)
		sessions int
	}{
		{"nothing", func(*world) {}, 0},
		{"less than half its life has passed", func(*world) { time.Sleep(25 * time.Minute) }, 0},
		{"half its life has passed", func(*world) { time.Sleep(34 * time.Minute) }, 1},
		{"it ends later", annotate(expires, in(40*time.Hour)), 1},
		{"it ended long ago", annotate(expires, in(-40*time.Hour)), 1},
		{"it was issued later", annotate(issued, in(30*time.Minute)), 1},
		{"it was issued after its end", annotate(issued, in(2*time.Hour)), 1},
		{"it was issued before the world", annotate(issued, func(time.Time) string { return "0001-01-01T00:00:00Z" }), 1},
		{"a time is no time", annotate(issued, func(time.Time) string { return "now" }), 1},
		{"a time is empty", annotate(expires, func(time.Time) string { return "" }), 1},
		{"the annotations are gone", func(w *world) {
			w.editSecret(func(s *corev1.Secret) { delete(s.Annotations, issued); delete(s.Annotations, expires) })
		}, 1},
		{"an older session is back", func(w *world) {
			older := w.secret()
			w.editBinding(renewNow)
			w.reconcile()
			w.editSecret(func(s *corev1.Secret) { s.Data, s.Annotations = older.Data, older.Annotations })
		}, 2}, // change() causes one renewal, and the next reconciliation another
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, newIdentity(), newBinding(func(o *identityv1.WorkloadIdentityBinding) { o.Spec.Store.Format = identityv1.StoreAWSSessionKeys }))
				sts := &sts{}
				w.options = func(o *binding.Options) { o.Provider = func(string) (auth.Provider, error) { return sts, nil } }
				w.restart()
				if o, _ := w.reconcile(); ready(o).Status != metav1.ConditionTrue || sts.sessions != 1 {
					t.Fatalf("%+v", ready(o))
				}
				time.Sleep(time.Second)
				c.change(w)
				o, _ := w.reconcile()
				if left := time.Until(o.Status.ExpiresAt.Time); sts.sessions-1 != c.sessions || left > time.Hour || left < 10*time.Minute {
					t.Errorf("%d sessions, want %d; the status believes in %s", sts.sessions-1, c.sessions, left)
				}
				if w.reconcile(); sts.sessions-1 != c.sessions {
					t.Error("renewed again, and nothing had changed")
				}
			})
		})
	}
}

// sts is a fake provider of AWS sessions. Each session is different and lives for an hour.
type sts struct{ sessions int }

func (*sts) GetName() string { return "aws" }

func (*sts) GetTarget(*auth.Options) (auth.Target, error) { return auth.Target{}, nil }

func (*sts) GetIdentity(auth.Account) (string, error) { return "", nil }

func (*sts) GetProofRequest(context.Context, *auth.Request) (auth.ProofRequest, error) {
	return auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{"sts.amazonaws.com"}, Lifetime: auth.ProofLifetime}, nil
}

func (s *sts) NewToken(context.Context, auth.Proof, *auth.Request) (auth.Token, error) {
	s.sessions++
	key := auth.NewSecret(string(slices.Repeat([]byte{'A'}, s.sessions)))
	return &aws.Token{AccessKeyID: key, SecretAccessKey: key, SessionToken: key, ExpiresAt: time.Now().Add(time.Hour)}, nil
}

// TestClocks lets the controller's clock jump. The credential in the Secret must always be valid by
// the issuer's clock, which is right. The jump must cause no storm of renewals.
func TestClocks(t *testing.T) {
	for _, c := range []struct {
		name string
		jump func(*world)
	}{
		{"no jump", func(*world) {}},
		{"ahead a little", func(w *world) { forward(w, 20*time.Minute) }},
		{"ahead by most of a life", func(w *world) { forward(w, 50*time.Minute) }},
		{"back a little", func(w *world) { back(w, 5*time.Minute) }},
		{"back by more than a life", func(w *world) { back(w, 3*time.Hour) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, newIdentity(), newBinding())
				w.reconcile()
				c.jump(w)
				w.server.requests = nil
				began := time.Now()
				for time.Since(began) < 6*time.Hour {
					o, next := w.reconcile()
					if r := ready(o); r.Status != metav1.ConditionTrue {
						t.Fatalf("%+v", r)
					}
					time.Sleep(next.RequeueAfter)
					if now := time.Now().Add(-w.server.behind); !o.Status.ExpiresAt.After(now) {
						t.Fatalf("at %s by the issuer's clock, the credential has ended at %s", now, o.Status.ExpiresAt)
					}
				}
				if n := len(w.server.requests); n < 8 || n > 6*60 {
					t.Errorf("%d tokens in six hours", n)
				}
			})
		})
	}
}

// forward sets the controller's clock ahead.
func forward(w *world, by time.Duration) {
	time.Sleep(by)
	w.server.behind += by
}

// back simulates that the controller's clock is set back. A test's clock cannot go back. Instead,
// the function writes a credential and a status that look as if written before the jump.
func back(w *world, by time.Duration) {
	w.t.Helper()
	w.server.behind -= by
	o := w.binding()
	began := o.Status.IssuedAt.Time
	w.editBinding(renewNow)
	w.reconcile()
	o = w.binding()
	o.Status.RenewAt = &metav1.Time{Time: began.Add(by + 30*time.Minute)}
	must.Succeed(w.t, w.kube.Status().Update(w.t.Context(), o))
}
