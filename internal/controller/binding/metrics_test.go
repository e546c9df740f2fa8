package binding_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/binding"
)

// TestMetrics checks the metrics that are computed from the status of bindings. A replica that
// does not reconcile must not have these metrics.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		failing := func(name string, since time.Duration) *identityv1.WorkloadIdentityBinding {
			return newBinding(func(o *identityv1.WorkloadIdentityBinding) {
				o.Name = name
				o.Status.Conditions = []metav1.Condition{{Type: meta.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
			})
		}
		fresh := newBinding(func(o *identityv1.WorkloadIdentityBinding) {
			o.Status.ExpiresAt = &metav1.Time{Time: now.Add(10 * time.Minute)}
			o.Status.Conditions = []metav1.Condition{{Type: meta.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
		})
		ended := failing("ended", time.Minute)
		ended.Status.ExpiresAt = &metav1.Time{Time: now.Add(-time.Minute)}
		w := newWorld(t, fresh, ended, failing("other", 3*time.Minute))
		elected := make(chan struct{})
		metrics := binding.NewMetrics(t.Context(), w.kube, elected)
		if n := testutil.CollectAndCount(metrics); n != 0 {
			t.Errorf("a replica that does not reconcile has %d series", n)
		}
		close(elected)
		const want = `
# HELP lanyard_binding_expiry_seconds Seconds until the credential in the Secret of a WorkloadIdentityBinding ends; negative when it has ended.
# TYPE lanyard_binding_expiry_seconds gauge
lanyard_binding_expiry_seconds{name="cloudidentity",namespace="tenant-a"} 600
lanyard_binding_expiry_seconds{name="ended",namespace="tenant-a"} -60
# HELP lanyard_binding_oldest_failure_seconds Seconds since when the WorkloadIdentityBinding fails that fails for the longest time; 0 if none fails.
# TYPE lanyard_binding_oldest_failure_seconds gauge
lanyard_binding_oldest_failure_seconds 180
`
		if err := testutil.CollectAndCompare(metrics, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

// TestRenewalsAreCounted checks that renewals are counted by outcome. A reconciliation without a
// renewal is not counted.
func TestRenewalsAreCounted(t *testing.T) {
	w := newWorld(t, newIdentity(), newBinding())
	w.reconcile()
	w.reconcile()
	w.editBinding(func(o *identityv1.WorkloadIdentityBinding) {
		o.Annotations = map[string]string{meta.OperationAnnotation: meta.OperationRenewToken}
	})
	w.server.down = errDown
	w.reconcile()
	for outcome, want := range map[string]float64{"success": 1, "error": 1} {
		if got := testutil.ToFloat64(w.renewals.WithLabelValues(outcome)); got != want {
			t.Errorf("%s: %v, want %v", outcome, got, want)
		}
	}
}
