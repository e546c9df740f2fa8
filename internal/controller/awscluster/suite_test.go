package awscluster_test

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
)

func TestConformance(t *testing.T) {
	controllertest.Run(t, func(t *testing.T) *controllertest.Case[*v1alpha1.AWSCluster] {
		t.Helper()
		w := newWorld(t, true)
		w.Static("root", identitytest.Admits())
		arn := w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil)
		admit := func(namespace string) {
			w.Role("target", identitytest.RoleSpec(arn, "root", identitytest.Admits(namespace)))
		}
		admit("team-a")
		target := w.Subject(identityv1.AWSClusterRoleIdentityKind, "", "target")
		w.cluster("team-a", "test", v1alpha1.AWSClusterSpec{IdentityRef: ref(identityv1.AWSClusterRoleIdentityKind, "target")})
		o := &v1alpha1.AWSCluster{}
		if err := w.kube.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "test"}, o); err != nil {
			t.Fatal(err)
		}
		fails := func(f fault.Fault) {
			f.Service, f.Operation = "sts", "AssumeRole"
			if _, err := w.Cloud.Faults().Add(f); err != nil {
				t.Fatal(err)
			}
		}
		return &controllertest.Case[*v1alpha1.AWSCluster]{
			Kube: w.kube, Object: o, Lent: true,
			Restart: func() {
				w.Tokens.Invalidate(target)
				w.restart()
			},
			Reconciler: func() controllertest.Reconciler[*v1alpha1.AWSCluster] { return w.r },
			Exchanges:  func() int { return w.Count("AssumeRole") },
			Fail: func(down bool) {
				w.Cloud.Faults().Clear()
				if down {
					fails(fault.Fault{Kind: fault.Unavailable})
				}
			},
			Hang: func() (asked <-chan struct{}) {
				fails(fault.Fault{Kind: fault.Latency, Delay: time.Hour, Count: 1})
				began := make(chan struct{})
				go func() {
					// The first call removes the fault from the list: wait until the list is empty.
					for len(w.Cloud.Faults().List()) > 0 && t.Context().Err() == nil {
						time.Sleep(time.Millisecond)
					}
					close(began)
				}()
				return began
			},
			Revoke: func() { admit("team-b") },
			Grant:  func() { admit("team-a") },
			Exclude: func(o *v1alpha1.AWSCluster) {
				// An AWSCluster has only one identityRef, so it cannot name two identities that
				// exclude each other. Name an identity of an invalid kind instead.
				o.Spec.IdentityRef.Kind = "Secret"
			},
			Forge: func(o *v1alpha1.AWSCluster) {
				o.Status.AccountID, o.Status.Identity.CloudIdentity = identitytest.Management, identitytest.Root
			},
			Offers: func(o *v1alpha1.AWSCluster) string { return fmt.Sprint(o.Status.AccountID, o.Status.Identity) },
		}
	})
}
