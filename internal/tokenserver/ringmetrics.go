package tokenserver

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// readTimeout bounds how long a scrape waits for the KeyRing.
const readTimeout = 5 * time.Second

// RingMetrics describes the keys and authorities of KeyRings. It is a Prometheus collector that
// reads the rings at each scrape. So every replica has the same metrics, even one that does not
// rotate keys.
type RingMetrics struct {
	client client.Reader
	rings  []client.ObjectKey
	period time.Duration // how long a key signs
	log    *slog.Logger

	condition, state, changed, due *prometheus.Desc
}

var _ prometheus.Collector = (*RingMetrics)(nil)

// NewRingMetrics makes metrics of rings whose keys sign for the given period.
func NewRingMetrics(reader client.Reader, rings []client.ObjectKey, period time.Duration, log *slog.Logger) *RingMetrics {
	key := []string{"ring", "kid", "algorithm"}
	return &RingMetrics{
		client: reader, rings: rings, period: period, log: log,
		condition: prometheus.NewDesc("lanyard_keyring_condition",
			"1 if the condition of the KeyRing is True, 0 otherwise.", []string{"ring", "type"}, nil),
		state: prometheus.NewDesc("lanyard_keyring_key_state", "1 for the state that a key is in.", append(key, "state"), nil),
		changed: prometheus.NewDesc("lanyard_keyring_key_state_since_timestamp_seconds",
			"Since when a key is in its state, in Unix time.", append(key, "state"), nil),
		due: prometheus.NewDesc("lanyard_keyring_key_rotation_due_timestamp_seconds",
			"When the next key should replace an active key, in Unix time.", key, nil),
	}
}

// Describe implements [prometheus.Collector].
func (m *RingMetrics) Describe(into chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.condition, m.state, m.changed, m.due} {
		into <- d
	}
}

// Collect implements [prometheus.Collector]. A ring that cannot be read has no metrics, and an
// alert reports this.
func (m *RingMetrics) Collect(into chan<- prometheus.Metric) {
	for _, ring := range m.rings {
		m.collect(ring, into)
	}
}

func (m *RingMetrics) collect(key client.ObjectKey, into chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout) //nolint:forbidigo // a collector gets no context
	defer cancel()
	ring := &identityv1.KeyRing{}
	if err := m.client.Get(ctx, key, ring); err != nil {
		m.log.Warn("there are no metrics of the KeyRing", "ring", key.String(), "error", err)
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		into <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{key.Name}, labels...)...)
	}
	for _, c := range ring.Status.Conditions {
		value := 0.0
		if c.Status == metav1.ConditionTrue {
			value = 1
		}
		gauge(m.condition, value, c.Type)
	}
	for _, e := range keyring.Entries(&ring.Status) {
		gauge(m.state, 1, e.ID, string(e.Role), string(e.State))
		gauge(m.changed, float64(since(e.KeyLife).Unix()), e.ID, string(e.Role), string(e.State))
		// An imported CA is replaced when its Secret changes, so it has no due time.
		imported := e.Authority != nil && e.Authority.Imported
		if e.State == identityv1.KeyActive && e.ActivatedAt != nil && !imported {
			gauge(m.due, float64(e.ActivatedAt.Add(m.period).Unix()), e.ID, string(e.Role))
		}
	}
}

// since returns the time of a key's last change of state.
func since(k *identityv1.KeyLife) time.Time {
	at := k.CreatedAt
	for _, later := range []*metav1.Time{k.PublishedAt, k.ActivatedAt, k.RetiredAt, k.RemovedAt} {
		if later != nil && later.After(at.Time) {
			at = *later
		}
	}
	return at.Time
}
