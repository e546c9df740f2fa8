package binding

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Renewals count renewals by outcome, as the metric lanyard_binding_renewals_total.
type Renewals struct{ *prometheus.CounterVec }

// NewRenewals makes a Renewals.
func NewRenewals() *Renewals {
	return &Renewals{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lanyard_binding_renewals_total",
		Help: `Renewals of the credentials of WorkloadIdentityBindings by outcome: success, the error's code, or error.`,
	}, []string{"outcome"})}
}

func (r *Renewals) count(err error) {
	outcome := "success"
	if err != nil {
		outcome = cmp.Or(string(auth.CodeOf(err)), "error")
	}
	r.WithLabelValues(outcome).Inc()
}

// NewMetrics makes the metrics that are computed from the status of bindings. Each scrape reads the
// bindings from the manager's cache, until ctx ends. There are no metrics until elected is closed,
// so only the replica that reconciles has metrics.
func NewMetrics(ctx context.Context, memory client.Reader, elected <-chan struct{}) prometheus.Collector {
	return &bindingMetrics{
		ctx: ctx, memory: memory, elected: elected,
		expiry: prometheus.NewDesc("lanyard_binding_expiry_seconds",
			"Seconds until the credential in the Secret of a WorkloadIdentityBinding ends; negative when it has ended.", []string{"namespace", "name"}, nil),
		failure: prometheus.NewDesc("lanyard_binding_oldest_failure_seconds",
			"Seconds since when the WorkloadIdentityBinding fails that fails for the longest time; 0 if none fails.", nil, nil),
	}
}

type bindingMetrics struct {
	ctx     context.Context //nolint:containedctx // Collect is given none
	memory  client.Reader
	elected <-chan struct{}

	expiry, failure *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m *bindingMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.expiry; ch <- m.failure }

// countTimeout bounds the time for reading bindings from the cache. Reads wait only at the start of
// the controller, until the cache has its first list.
const countTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (m *bindingMetrics) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-m.elected:
	default:
		return // another replica reconciles, and has the metrics
	}
	ctx, cancel := context.WithTimeout(m.ctx, countTimeout)
	defer cancel()
	now, oldest := time.Now(), time.Duration(0)
	var found []prometheus.Metric
	err := object.Each(ctx, m.memory, &identityv1.WorkloadIdentityBindingList{}, func(o *identityv1.WorkloadIdentityBinding) {
		oldest = max(oldest, failingFor(o, now))
		if ends := o.Status.ExpiresAt; ends != nil {
			found = append(found, prometheus.MustNewConstMetric(m.expiry, prometheus.GaugeValue, ends.Sub(now).Seconds(), o.Namespace, o.Name))
		}
	})
	if err != nil {
		return // report nothing rather than metrics of only some bindings
	}
	for _, metric := range append(found, prometheus.MustNewConstMetric(m.failure, prometheus.GaugeValue, oldest.Seconds())) {
		ch <- metric
	}
}

// failingFor returns for how long a binding has not been ready; zero if it is ready.
func failingFor(o *identityv1.WorkloadIdentityBinding, now time.Time) time.Duration {
	c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse {
		return 0
	}
	return max(0, now.Sub(c.LastTransitionTime.Time))
}
