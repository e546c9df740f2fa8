package object

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// state is an object's condition Ready without its message.
type state struct{ kind, namespace, ready, reason string }

// NewMetrics returns the collector of the metric lanyard_objects. It counts the objects of all
// reconcilers that use the given Shared; make the reconcilers first.
//
// The metric has a series for each combination of kind, namespace, status and reason that some
// object has. So there are never more series than objects. The number of reasons (docs/errors.md)
// limits the series of a namespace, however many objects a tenant makes.
//
// The objects are counted at each scrape until ctx ends. Only the replica that reconciles has the
// metric, so the values of all replicas can be added up.
func NewMetrics(ctx context.Context, shared *Shared) prometheus.Collector {
	return &objectMetrics{
		ctx:    ctx,
		shared: shared,
		objects: prometheus.NewDesc("lanyard_objects",
			"Objects by kind, namespace, and status (True, False, Unknown) and reason of their condition Ready.",
			[]string{"kind", "namespace", "ready", "reason"}, nil),
	}
}

type objectMetrics struct {
	ctx     context.Context //nolint:containedctx // Collect is given none
	shared  *Shared
	objects *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m *objectMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.objects }

// countTimeout bounds the time for counting. Counting waits only at the start of a controller,
// until the first lists have been read.
const countTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (m *objectMetrics) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-m.shared.Elected:
	default:
		return // another replica reconciles, and counts
	}
	ctx, cancel := context.WithTimeout(m.ctx, countTimeout)
	defer cancel()
	objects := map[state]int{}
	for _, count := range m.shared.counts {
		if count(ctx, objects) != nil {
			return // no metrics: the numbers would be too low
		}
	}
	for s, n := range objects {
		ch <- prometheus.MustNewConstMetric(m.objects, prometheus.GaugeValue, float64(n), s.kind, s.namespace, s.ready, s.reason)
	}
}

// count counts the kind's objects in the cache, and adds the numbers to those in the map.
func (r *Reconciler[O, P]) count(ctx context.Context, objects map[state]int) error {
	_, list := r.kind.Empty()
	return Each(ctx, r.shared.Client, list, func(o O) {
		condition := ready(o.GetStatus())
		objects[state{
			kind: r.name, namespace: o.GetNamespace(),
			ready:  cmp.Or(string(condition.Status), string(metav1.ConditionUnknown)), // not reconciled yet
			reason: cmp.Or(condition.Reason, meta.ReasonProgressing),
		}]++
	})
}
