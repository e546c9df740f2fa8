package binding_test

import (
	"context"
	"fmt"
	"testing"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func TestConformance(t *testing.T) {
	controllertest.Run(t, func(t *testing.T) *controllertest.Case[*identityv1.WorkloadIdentityBinding] {
		t.Helper()
		w := newWorld(t, newIdentity(), newBinding())
		return &controllertest.Case[*identityv1.WorkloadIdentityBinding]{
			Kube: w.kube, Object: w.binding(), Restart: w.restart,
			Reconciler: func() controllertest.Reconciler[*identityv1.WorkloadIdentityBinding] { return w.r },
			Exchanges:  func() int { return len(w.server.requests) },
			Fail: func(fails bool) {
				w.server.down = nil
				if fails {
					w.server.down = errDown
				}
			},
			Hang: w.server.hang,
			Revoke: func() {
				must.Succeed(t, w.kube.Delete(t.Context(), newIdentity()))
			},
			Grant: func() {
				must.Succeed(t, w.kube.Create(t.Context(), newIdentity()))
			},
			Exclude: func(o *identityv1.WorkloadIdentityBinding) {
				o.Spec.IdentityRef = &identityv1.BindingIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "another"}
			},
			Forge: func(o *identityv1.WorkloadIdentityBinding) {
				o.Status.Digest, o.Status.KID, o.Status.ExpiresAt.Time = "another", "another", o.Status.ExpiresAt.AddDate(1, 0, 0)
				o.Status.Keys = []string{"another"}
			},
			Offers: func(o *identityv1.WorkloadIdentityBinding) string {
				return fmt.Sprint(o.Status.KID, o.Status.Type, o.Status.Account, o.Status.Keys)
			},
			Kept: func() bool { return w.secret() != nil },
			NameIdentity: func(o *identityv1.WorkloadIdentityBinding) {
				o.Spec.WorkloadIdentity = &identityv1.WorkloadIdentityReference{Name: "banana-testing"}
			},
		}
	})
}

// hang stops the server's answers. Each request for a token then waits until its context ends. The
// channel gets a value when a request begins.
func (s *tokenServer) hang() (asked <-chan struct{}) {
	began := make(chan struct{}, 1)
	s.wait = func(ctx context.Context) {
		began <- struct{}{}
		<-ctx.Done()
	}
	return began
}
