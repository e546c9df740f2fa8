package sign

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// TestLead: one of two replicas keeps the ring, and the other takes over when it ends.
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

// TestLeadNeedsAnIdentity: without one, two replicas would take each other for themselves.
func TestLeadNeedsAnIdentity(t *testing.T) {
	err := Lead(t.Context(), fake.NewClientset().CoordinationV1(), namespace, "lanyard-keyring-issuer", "", func(context.Context) {})
	if err == nil {
		t.Error("leads without an identity")
	}
}
