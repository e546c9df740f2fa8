package sign

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// TestLead asserts that only one of two replicas leads. When the leader stops, the other replica
// must take over.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		leases := fake.NewClientset().CoordinationV1()
		var leading atomic.Int32
		var running sync.WaitGroup
		replica := func(name string) context.CancelFunc {
			ctx, stop := context.WithCancel(t.Context())
			r := w.rotator(w.api)
			running.Go(func() {
				err := Lead(ctx, leases, namespace, "lanyard-keyring-issuer", name, func(ctx context.Context) {
					leading.Add(1)
					defer leading.Add(-1)
					r.Run(ctx, nil)
				})
				if err != nil {
					t.Error(err)
				}
			})
			return stop
		}
		first := replica("first")
		time.Sleep(time.Minute)
		second := replica("second")
		time.Sleep(time.Minute)
		if n := leading.Load(); n != 1 {
			t.Errorf("%d replicas lead", n)
		}
		if active := w.state(v1alpha1.KeyActive); len(active) != 1 {
			t.Errorf("active: %v", active)
		}
		first()
		time.Sleep(time.Minute)
		if n := leading.Load(); n != 1 {
			t.Errorf("%d replicas lead after the first has ended", n)
		}
		second()
		running.Wait()
	})
}

// TestLeaseExpires cuts the leader off from the API server. The other replica must lead when the
// lease has expired, but never before the former leader has stopped. The former leader waits, and
// leads again later.
func TestLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := fake.NewClientset()
		var cut atomic.Bool
		clients.PrependReactor("update", "leases", func(action k8stesting.Action) (bool, runtime.Object, error) {
			lease := action.(k8stesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			return cut.Load() && *lease.Spec.HolderIdentity != "second", nil, errNoAnswer
		})
		var leaders atomic.Int32
		var running sync.WaitGroup
		replica := func(name string) (leads *atomic.Bool, stop context.CancelFunc) {
			ctx, stop := context.WithCancel(t.Context())
			leads = &atomic.Bool{}
			running.Go(func() {
				err := Lead(ctx, clients.CoordinationV1(), namespace, "lanyard-keyring-issuer", name, func(ctx context.Context) {
					if leaders.Add(1) > 1 {
						t.Errorf("%s leads while the other does", name)
					}
					leads.Store(true)
					<-ctx.Done()
					leads.Store(false)
					leaders.Add(-1)
				})
				if err != nil {
					t.Error(err)
				}
			})
			return leads, stop
		}
		want := func(when string, first, second *atomic.Bool, wantFirst, wantSecond bool) {
			t.Helper()
			if first.Load() != wantFirst || second.Load() != wantSecond {
				t.Errorf("%s: first leads %v, second leads %v", when, first.Load(), second.Load())
			}
		}
		first, stopFirst := replica("first")
		time.Sleep(time.Minute)
		second, stopSecond := replica("second")
		time.Sleep(time.Minute)
		want("at first", first, second, true, false)
		cut.Store(true)
		time.Sleep(5 * time.Second)
		want("five seconds after the cut", first, second, true, false)
		time.Sleep(time.Minute)
		want("when the lease has expired", first, second, false, true)
		cut.Store(false)
		time.Sleep(time.Minute)
		want("when the first is back", first, second, false, true)
		stopSecond()
		time.Sleep(time.Minute)
		want("when the second has ended", first, second, true, false)
		stopFirst()
		running.Wait()
	})
}

// TestLeadNeedsAnIdentity asserts that an empty identity is an error. If all replicas had the same
// identity, they could not tell which of them holds the lease.
func TestLeadNeedsAnIdentity(t *testing.T) {
	err := Lead(t.Context(), fake.NewClientset().CoordinationV1(), namespace, "lanyard-keyring-issuer", "", func(context.Context) {})
	if err == nil {
		t.Error("leads without an identity")
	}
}
