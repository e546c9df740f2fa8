package source

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// observed is what metrics are made of, for one kind.
type observed interface {
	// count adds the kind's objects to those of their states, from memory.
	count(ctx context.Context, objects map[state]int) error
	// durations are those of the kind's fetches.
	durations() prometheus.Collector
}

// state is what the condition Ready of an object says, without its words.
type state struct{ kind, namespace, ready, reason string }

// NewObjectMetrics makes the metrics of the objects that the reconcilers made with shared work on; all of these must have been made.
//
// lanyard_objects has a series for each kind, namespace, status and reason that some object has: never more than there are objects, and
// for a namespace never more than reasons, which are the controller's (docs/errors.md), however many objects a tenant makes. It is
// counted when it is asked for until ctx ends, and only where the objects are reconciled, so that replicas can be added up.
func NewObjectMetrics(ctx context.Context, shared *Shared) prometheus.Collector {
	return &objectMetrics{
		ctx:    ctx,
		shared: shared,
		objects: prometheus.NewDesc("lanyard_objects",
			"Objects by kind, namespace, and status (True, False, Unknown) and reason of their condition Ready.",
			[]string{"kind", "namespace", "ready", "reason"}, nil),
	}
}

// newDurations makes the histogram of one kind's fetches.
func newDurations(kind string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:        "lanyard_fetch_duration_seconds",
		Help:        "Time in seconds that fetches took, from the credential to the artifact or scan, by kind and outcome (success, or the reason of the failure).",
		Buckets:     prometheus.ExponentialBuckets(0.01, 3, 12), // 10 ms … 30 min
		ConstLabels: prometheus.Labels{"kind": kind},
	}, []string{"outcome"})
}

type objectMetrics struct {
	ctx     context.Context //nolint:containedctx // Collect is given none
	shared  *Shared
	objects *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m *objectMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.objects
	for _, kind := range m.shared.kinds {
		kind.durations().Describe(ch)
	}
}

// countTimeout bounds the counting, which waits for nobody but the first lists of a controller that starts.
const countTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (m *objectMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, kind := range m.shared.kinds {
		kind.durations().Collect(ch)
	}
	select {
	case <-m.shared.Artifacts.Elected:
	default:
		return // another replica reconciles, and counts
	}
	ctx, cancel := context.WithTimeout(m.ctx, countTimeout)
	defer cancel()
	objects := map[state]int{}
	for _, kind := range m.shared.kinds {
		if kind.count(ctx, objects) != nil {
			return // rather no number than a wrong one
		}
	}
	for s, n := range objects {
		ch <- prometheus.MustNewConstMetric(m.objects, prometheus.GaugeValue, float64(n), s.kind, s.namespace, s.ready, s.reason)
	}
}

// count implements observed.
func (r *Reconciler[O, P]) count(ctx context.Context, objects map[state]int) error {
	return r.each(ctx, func(o O) {
		condition := ready(r.kind.View(o).Status)
		objects[state{
			kind: r.name, namespace: o.GetNamespace(),
			ready:  cmp.Or(string(condition.Status), string(metav1.ConditionUnknown)), // nobody has looked at it yet
			reason: cmp.Or(condition.Reason, meta.ReasonProgressing),
		}]++
	})
}

// durations implements observed.
func (r *Reconciler[O, P]) durations() prometheus.Collector { return r.took }

// time has the histogram hear how long the fetch took.
func (r *Reconciler[O, P]) time(fetch func() error) error {
	began := time.Now()
	err := fetch()
	outcome := "success"
	if err != nil {
		outcome = explain(err, r.kind.Explain).Reason
	}
	r.took.WithLabelValues(outcome).Observe(time.Since(began).Seconds())
	return err
}
