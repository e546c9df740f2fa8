package cache

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/puzpuzpuz/xsync/v4"

	"github.com/lanyard-dev/lanyard/auth"
)

// metrics has the counters of a cache. They are striped, because cores would wait for each other at
// a shared counter.
type metrics struct {
	hits, misses, failures *xsync.Counter
	evictions              *xsync.Counter
	exchanges              *prometheus.HistogramVec
	objects                *prometheus.CounterVec // nil without Options.ObjectMetrics
}

//nolint:gochecknoglobals // descriptions of metrics, never written.
var (
	descRequests = prometheus.NewDesc("lanyard_token_cache_requests_total",
		"Calls answered, by status: hit (from memory), miss (a token was got), failure.", []string{"status"}, nil)
	descItems     = prometheus.NewDesc("lanyard_token_cache_cached_items", "Valid tokens in memory.", nil, nil)
	descEvictions = prometheus.NewDesc("lanyard_token_cache_evictions_total",
		"Valid tokens given up because the capacity was too small.", nil, nil)
)

func newMetrics(objects bool) *metrics {
	m := &metrics{
		hits: xsync.NewCounter(), misses: xsync.NewCounter(), failures: xsync.NewCounter(), evictions: xsync.NewCounter(),
		exchanges: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lanyard_token_exchange_duration_seconds",
			Help:    "Time taken by each stage of getting a token that was not in memory, by provider, stage and outcome.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 13), // 5 ms … 20 s
		}, []string{"provider", "stage", "outcome"}),
	}
	if objects {
		m.objects = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_token_cache_events_total",
			Help: "Hits and misses, by the object on whose behalf the token was asked for.",
		}, []string{"event", "kind", "namespace", "name", "operation"})
	}
	return m
}

func (m *metrics) hit(involved auth.InvolvedObject) {
	m.hits.Inc()
	if m.objects != nil {
		m.object("cache_hit", involved)
	}
}

func (m *metrics) outcome(involved auth.InvolvedObject, err error) {
	if err != nil {
		m.failures.Inc()
	} else {
		m.misses.Inc()
	}
	if m.objects != nil {
		m.object("cache_miss", involved)
	}
}

func (m *metrics) object(event string, o auth.InvolvedObject) {
	if o.Name != "" {
		m.objects.WithLabelValues(event, o.Kind, o.Namespace, o.Name, o.Operation).Inc()
	}
}

// ObserveStage implements [auth.Observer].
func (c *Cache) ObserveStage(provider string, stage auth.Stage, outcome string, took time.Duration) {
	c.metrics.exchanges.WithLabelValues(provider, string(stage), outcome).Observe(took.Seconds())
}

// Forget removes the metrics of an object that no longer exists.
func (c *Cache) Forget(kind, namespace, name string) {
	if c.metrics.objects != nil {
		c.metrics.objects.DeletePartialMatch(prometheus.Labels{"kind": kind, "namespace": namespace, "name": name})
	}
}

// Describe implements [prometheus.Collector].
func (c *Cache) Describe(ch chan<- *prometheus.Desc) {
	ch <- descRequests
	ch <- descItems
	ch <- descEvictions
	c.metrics.exchanges.Describe(ch)
	if c.metrics.objects != nil {
		c.metrics.objects.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (c *Cache) Collect(ch chan<- prometheus.Metric) {
	requests := func(status string, n *xsync.Counter) {
		ch <- prometheus.MustNewConstMetric(descRequests, prometheus.CounterValue, float64(n.Value()), status)
	}
	requests("hit", c.metrics.hits)
	requests("miss", c.metrics.misses)
	requests("failure", c.metrics.failures)
	ch <- prometheus.MustNewConstMetric(descItems, prometheus.GaugeValue, float64(c.Len()))
	ch <- prometheus.MustNewConstMetric(descEvictions, prometheus.CounterValue, float64(c.metrics.evictions.Value()))
	c.metrics.exchanges.Collect(ch)
	if c.metrics.objects != nil {
		c.metrics.objects.Collect(ch)
	}
}
