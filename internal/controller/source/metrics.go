package source

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// namespaceSizes is a metric: the sizes in bytes of the namespaces that use most of the artifact
// store. It has at most [largestNamespaces] series, so tenants with many namespaces cannot make the
// metric large.
type namespaceSizes struct {
	store *store.Store
	desc  *prometheus.Desc
}

// NewNamespaceSizes returns a metric: the sizes of the largest namespaces in the store s.
func NewNamespaceSizes(s *store.Store) prometheus.Collector {
	return &namespaceSizes{store: s, desc: prometheus.NewDesc("lanyard_artifact_store_namespace_bytes",
		"Bytes of a namespace's artifacts, with the room to replace the largest; only the ten largest namespaces.", []string{"namespace"}, nil)}
}

// Describe implements prometheus.Collector.
func (m *namespaceSizes) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements prometheus.Collector.
func (m *namespaceSizes) Collect(out chan<- prometheus.Metric) {
	for _, n := range m.store.Largest(largestNamespaces) {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(n.Bytes), n.Namespace)
	}
}
