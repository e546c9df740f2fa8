package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

const (
	// probeInterval is the time between two probes of the hub.
	probeInterval = 15 * time.Second
	// probeTimeout bounds one probe.
	probeTimeout = 10 * time.Second
	// memoryTimeout is how long [Hub.Get] waits for the cache before it reads from the hub.
	memoryTimeout = time.Second
)

// Options configure a [Hub]. All fields are required.
type Options struct {
	// Config is the connection to the hub's API server, see [LoadConfig].
	Config *rest.Config
	// Namespaces maps namespaces of the spoke to namespaces of the hub.
	Namespaces Namespaces
	// KeyRing is the name of the KeyRing of the hub's issuer.
	KeyRing types.NamespacedName
}

// Hub is a spoke's connection to its hub. It is safe for concurrent use. A Hub must be added to the
// spoke's manager, which calls [Hub.Start]. The manager starts even if the hub's API server cannot
// be reached.
type Hub struct {
	// Identities reads the hub's WorkloadIdentities and gets their tokens. The namespace of each
	// subject is a namespace of the hub.
	Identities *kube.WorkloadIdentities

	namespaces Namespaces
	cluster    cluster.Cluster
	ring       types.NamespacedName
	began      time.Time

	mu          sync.Mutex
	state       State    // guarded by mu
	subscribers []func() // guarded by mu; only ever appended to
}

// New returns a Hub. It sends no request.
func New(ctx context.Context, o Options) (*Hub, error) {
	scheme := runtime.NewScheme()
	if err := identityv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	made, err := cluster.New(o.Config, func(c *cluster.Options) {
		c.Scheme, c.MapperProvider, c.Cache = scheme, mapper, caches(o)
	})
	if err != nil {
		return nil, fmt.Errorf("make the connection to the hub: %w", err)
	}
	identities, err := kube.WorkloadIdentitiesFromManager(ctx, made,
		kube.WorkloadIdentityOptions{Watched: &identityv1.WorkloadIdentity{}, KeyRing: o.KeyRing})
	if err != nil {
		return nil, fmt.Errorf("watch the identities at the hub: %w", err)
	}
	return &Hub{namespaces: o.Namespaces, Identities: identities, cluster: made, ring: o.KeyRing, began: time.Now()}, nil
}

// mapper returns a RESTMapper of the kinds that are read at the hub. The kinds are fixed: the spoke
// must start even if the hub does not answer discovery requests.
func mapper(*rest.Config, *http.Client) (apimeta.RESTMapper, error) {
	known := apimeta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{identityv1.WorkloadIdentityKind, identityv1.KeyRingKind} {
		known.Add(identityv1.GroupVersion().WithKind(kind), apimeta.RESTScopeNamespace)
	}
	return known, nil
}

// caches returns the options of the cache for objects of the hub's API server. The cache reads the
// KeyRing o.KeyRing. It also reads the WorkloadIdentities in the namespaces of the hub that
// o.Namespaces lists. The hub does not allow the spoke to list other objects.
func caches(o Options) cache.Options {
	namespaces := map[string]cache.Config{}
	for _, at := range o.Namespaces {
		namespaces[at] = cache.Config{}
	}
	kept := map[client.Object]cache.ByObject{
		&identityv1.WorkloadIdentity{}: {Namespaces: namespaces, Transform: memory.Kept{}.Remember},
		&identityv1.KeyRing{}: {
			Namespaces: map[string]cache.Config{o.KeyRing.Namespace: {}},
			Field:      fields.OneTermEqualSelector("metadata.name", o.KeyRing.Name),
		},
	}
	return cache.Options{ByObject: kept, DefaultTransform: memory.Metadata}
}

// Start implements controller-runtime's Runnable. It watches and probes the hub until ctx ends.
func (h *Hub) Start(ctx context.Context) error {
	var probing sync.WaitGroup
	probing.Go(func() { h.probe(ctx) })
	defer probing.Wait()
	return h.cluster.Start(ctx)
}

// NeedLeaderElection implements controller-runtime's LeaderElectionRunnable: a replica watches the
// hub even if it is not the leader.
func (*Hub) NeedLeaderElection() bool { return false }

// NamespaceOf returns the namespace at the hub for a namespace of the spoke, as [Namespaces.Of]
// does.
func (h *Hub) NamespaceOf(namespace string) (string, error) { return h.namespaces.Of(namespace) }

// Get reads an identity by its name at the hub. It reads from the cache. If the cache has not
// started, or is not synced within a second, Get reads from the hub instead. If the last probe has
// failed, Get returns the [*Error] of that probe in two cases:
//   - No probe has ever succeeded. Get then reads nothing.
//   - Get has read from the hub, and this has failed too.
//
// Otherwise, if the hub forbids the spoke to read this namespace, the error is another [*Error].
func (h *Hub) Get(ctx context.Context, key client.ObjectKey, identity *identityv1.WorkloadIdentity) error {
	state := h.State()
	if state.Err != nil && state.Answered.IsZero() {
		return state.Err
	}
	soon, cancel := context.WithTimeout(ctx, memoryTimeout)
	defer cancel()
	err := h.cluster.GetCache().Get(soon, key, identity)
	if _, waiting := errors.AsType[*cache.ErrCacheNotStarted](err); !waiting && soon.Err() == nil {
		return err
	}
	err = h.cluster.GetAPIReader().Get(ctx, key, identity)
	switch state := h.State(); {
	case err != nil && state.Err != nil:
		return state.Err
	case apierrors.IsForbidden(err):
		return &Error{
			Reason: meta.ReasonHubRefused, Fix: "run lanyard hub grant at the hub for this namespace",
			Err: fmt.Errorf("it may not read the WorkloadIdentities of namespace %s", key.Namespace),
		}
	}
	return err
}

// State returns the result of the last probe. Before the first probe ends, the State has no error.
func (h *Hub) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Subscribe registers a function that is called each time a probe succeeds after a failed probe.
// The function must return at once.
func (h *Hub) Subscribe(answers func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers = append(h.subscribers, answers)
}

// probe regularly reads the KeyRing from the hub until ctx ends. Every spoke has at least the right
// to read the KeyRing.
func (h *Hub) probe(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		h.see(ctx, h.ask(ctx))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (h *Hub) ask(ctx context.Context) *Error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := h.cluster.GetAPIReader().Get(ctx, h.ring, &identityv1.KeyRing{})
	if err == nil {
		return nil
	}
	return h.failure(ctx, err)
}

// see records the error of a probe; a nil error means success. It logs a change, and calls the
// subscribers if a probe succeeds after a failure.
func (h *Hub) see(ctx context.Context, failed *Error) {
	if ctx.Err() != nil {
		return // the program ends
	}
	last, subscribers := h.keep(failed)
	switch {
	case failed != nil && (last.Err == nil || last.Err.Reason != failed.Reason):
		log.FromContext(ctx).Error(failed, "The hub gives no credentials; those in Secrets live on until they end")
	case failed == nil && last.Err != nil:
		log.FromContext(ctx).Info("The hub answers again", "since", last.Err.Since)
		for _, answers := range subscribers {
			answers()
		}
	}
}

// keep saves the result of a probe in h.state. It returns the previous state and the subscribers.
func (h *Hub) keep(failed *Error) (last State, subscribers []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last = h.state
	if failed == nil {
		h.state = State{Answered: time.Now().UTC()}
		return last, h.subscribers
	}
	failed.Since = cmp.Or(last.Answered, h.began)
	h.state.Err = failed
	return last, h.subscribers
}

// Describe implements prometheus.Collector.
func (h *Hub) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(h, descriptions)
}

// Collect implements prometheus.Collector.
func (h *Hub) Collect(metrics chan<- prometheus.Metric) {
	state := h.State()
	answers, last := 1.0, cmp.Or(state.Answered, h.began)
	if state.Err != nil {
		answers = 0
	}
	metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc("lanyard_hub_answers",
		"1 if the hub answered the last question as it should, otherwise 0.", nil, nil), prometheus.GaugeValue, answers)
	metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc("lanyard_hub_last_answer_timestamp_seconds",
		"When the hub last answered as it should, or when the program began to ask, in Unix time.", nil, nil),
		prometheus.GaugeValue, float64(last.Unix()))
}
