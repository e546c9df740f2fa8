package tokenserver

import (
	"cmp"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
)

// Metrics is a Prometheus collector that counts what the token server does.
type Metrics struct {
	tokens   *prometheus.CounterVec
	svids    *prometheus.CounterVec
	refusals *prometheus.CounterVec
	log      *slog.Logger
}

var _ prometheus.Collector = (*Metrics)(nil)

// NewMetrics makes metrics. The logger gets the causes of failures that are not the caller's fault.
func NewMetrics(log *slog.Logger) *Metrics {
	return &Metrics{
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_tokens_minted_total", Help: "Tokens made for a WorkloadIdentity.",
		}, []string{"namespace", "name"}),
		svids: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_svids_minted_total", Help: "SVIDs made for objects, by their type and the resource of the object.",
		}, []string{"type", "resource"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lanyard_token_refusals_total", Help: "Token requests that were refused, by the reason of the API's status.",
		}, []string{"reason"}),
		log: log,
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(into chan<- *prometheus.Desc) {
	m.tokens.Describe(into)
	m.svids.Describe(into)
	m.refusals.Describe(into)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(into chan<- prometheus.Metric) {
	m.tokens.Collect(into)
	m.svids.Collect(into)
	m.refusals.Collect(into)
}

// forget drops the series of an identity that was deleted.
func (m *Metrics) forget(namespace, name string) { m.tokens.DeleteLabelValues(namespace, name) }

func (m *Metrics) minted(identity *identityv1.WorkloadIdentity) {
	m.tokens.WithLabelValues(identity.Namespace, identity.Name).Inc()
}

// mintedSVID counts an SVID. There are no series per object, because the token server does not see
// when objects are deleted.
func (m *Metrics) mintedSVID(form tokenv1.SVIDType, resource string) {
	m.svids.WithLabelValues(string(form), resource).Inc()
}

func (m *Metrics) refused(err error) {
	// Count an error without a reason as InternalError: the API server's library answers with this
	// reason.
	reason := cmp.Or(apierrors.ReasonForError(err), metav1.StatusReasonInternalError)
	m.refusals.WithLabelValues(string(reason)).Inc()
	if refused, ok := errors.AsType[*refusal](err); ok {
		m.log.Error("a token could not be made", "error", refused.cause)
	}
}

// refusal is an answer for the caller, with a cause that only the log gets. The answer is embedded,
// because the API server's library does not unwrap errors to find a status.
type refusal struct {
	*apierrors.StatusError

	cause error
}

// Unwrap returns the embedded StatusError.
func (r *refusal) Unwrap() error { return r.StatusError }
