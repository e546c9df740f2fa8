package source

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Shared is what the reconcilers of all sources of one controller share. All fields are required.
type Shared struct {
	// Shared is what they share with the reconcilers of other objects.
	*object.Shared

	// Rules turn an object's identity fields into an identity or a refusal.
	Rules spec.Rules
	// Renew drops the tokens of a subject, so that the next use gets a new one. It may be called at
	// any rate.
	Renew func(auth.Subject)
	// Artifacts are the store, and which objects have something in it.
	Artifacts *Artifacts
	// External publishes artifacts to Flux.
	External *externalartifact.Publisher
	// Durations hear how long fetches took; see [NewDurations].
	Durations *prometheus.HistogramVec
}

// NewDurations makes the histogram lanyard_fetch_duration_seconds.
func NewDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lanyard_fetch_duration_seconds",
		Help:    "Time in seconds that fetches took, from the credential to the artifact or scan, by kind and outcome (success, or the reason of the failure).",
		Buckets: prometheus.ExponentialBuckets(0.01, 3, 12), // 10 ms … 30 min
	}, []string{"kind", "outcome"})
}

// Reconciler reconciles the sources of one kind.
type Reconciler[O Object, P any] = object.Reconciler[O, task[P]]

// New makes the reconciler of a kind, and makes its objects known to the shared artifacts. The entry
// is the kind's one of the table; its objects are of type O.
func New[O Object, P any](shared *Shared, entry kinds.Kind, kind Kind[O, P]) *Reconciler[O, P] {
	f := &fetching[O, P]{shared: shared, entry: entry, kind: kind}
	shared.Artifacts.kinds = append(shared.Artifacts.kinds, f.claims)
	return object.New(shared.Shared, entry.Kind, f)
}

// fetching is a kind of source as the frame of all objects knows it.
type fetching[O Object, P any] struct {
	shared *Shared
	entry  kinds.Kind
	kind   Kind[O, P]
}

// task is a kind's plan, and the identity that carries it out.
type task[P any] struct {
	plan P
	call Call
}

// Empty implements object.Definition.
func (f *fetching[O, P]) Empty() (O, client.ObjectList) { return f.entry.New().(O), f.entry.NewList() }

// View implements object.Definition.
func (f *fetching[O, P]) View(o O) object.View {
	v := viewOf(&f.entry, o)
	v.DependsOn = access.DependsOn(v.fields, f.shared.Rules)
	v.Renewable = v.fields.WorkloadIdentityName != ""
	return v.View
}

// Decide implements object.Kind. The identity comes first, so that a kind knows it when it makes
// its plan.
func (f *fetching[O, P]) Decide(ctx context.Context, o O) (task[P], error) {
	view := viewOf(&f.entry, o)
	if err := view.checkBounds(); err != nil {
		return task[P]{}, err
	}
	identity, err := spec.Resolve(ctx, view.fields, f.shared.Rules)
	if err != nil {
		return task[P]{}, err
	}
	call := Call{
		Call: access.Call{
			Object:   auth.InvolvedObject{Kind: f.entry.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), Operation: "reconcile"},
			Self:     auth.ObjectReference{APIVersion: f.entry.GroupVersion().String(), Kind: f.entry.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())},
			Identity: identity,
			RetryNow: object.RetryNow(o),
		},
		Owner:  f.owner(o),
		Stored: f.shared.Artifacts.stored(ctx, f.owner(o), view.artifact),
	}
	plan, err := f.kind.Decide(o, call)
	return task[P]{plan, call}, err
}

// Act implements object.Kind.
func (f *fetching[O, P]) Act(ctx context.Context, o O, t task[P]) (news string, err error) {
	before, began, outcome := artifactOf(o).DeepCopy(), time.Now(), "success"
	if o.GetAccess().WorkloadIdentityName != "" && object.RenewalRequested(o) {
		f.shared.Renew(t.call.Identity.Subject)
	}
	if err = t.call.Explain(f.kind.Fetch(ctx, o, t.plan, t.call)); err != nil {
		outcome = object.Explain(err, f.Explain).Reason
	}
	f.shared.Durations.WithLabelValues(f.entry.Kind, outcome).Observe(time.Since(began).Seconds())
	if err == nil && isAnother(artifactOf(o), before) {
		news = "NewArtifact"
	}
	return news, err
}

func isAnother(artifact, old *v1alpha1.Artifact) bool {
	return artifact != nil && (old == nil || old.Revision != artifact.Revision || old.Digest != artifact.Digest)
}

// Report implements object.Kind. The ExternalArtifact follows the spec even while the object is
// suspended.
func (f *fetching[O, P]) Report(ctx context.Context, o O, outcome object.Outcome) (found string, err error) {
	defer func() {
		if ctx.Err() == nil {
			f.shared.Artifacts.readiness.try(f.owner(o))
		}
	}()
	if outcome.Refused {
		o.GetFetchStatus().Identity = nil // without a plan, no identity was granted
	}
	view := viewOf(&f.entry, o)
	offer := externalartifact.Offer{Failed: outcome.Reason, Suspended: outcome.Suspended}
	stored := outcome.Fulfilled() && view.artifact != nil || // Decide found it in the store, or Fetch has put it there
		f.shared.Artifacts.stored(ctx, f.owner(o), view.artifact)
	if stored {
		object.SetCondition(o, meta.ConditionArtifactInStorage, metav1.ConditionTrue, meta.ReasonSucceeded, f.found(o))
	} else {
		object.RemoveCondition(o, meta.ConditionArtifactInStorage)
	}
	if stored || view.artifact == nil {
		found = f.found(o)
	} else if outcome.Suspended {
		offer.Failed = meta.ReasonSuspended // nobody fetches what the store has lost
	}
	return found, f.publish(ctx, o, offer, outcome.Save)
}

// found says in a few words what the status offers; empty if it offers nothing.
func (f *fetching[O, P]) found(o O) string {
	if found := f.entry.Found(o); found != nil {
		return found.Text
	}
	return ""
}

// Finalize implements object.Kind.
func (f *fetching[O, P]) Finalize(_ context.Context, o O) error {
	return f.shared.Artifacts.remove(f.owner(o))
}

// owner is the object as the store knows it.
func (f *fetching[O, P]) owner(o O) store.Object {
	return store.Object{Kind: strings.ToLower(f.entry.Kind), Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}

// claims shows the claims of the kind's objects, from memory.
func (f *fetching[O, P]) claims(ctx context.Context, show func(claim)) error {
	return object.Each(ctx, f.shared.Client, f.entry.NewList(), func(o O) {
		c := claim{owner: f.owner(o), idle: o.GetSchedule().Suspend || !o.GetDeletionTimestamp().IsZero()}
		if artifact := artifactOf(o); artifact != nil {
			c.digest = artifact.Digest
		}
		show(c)
	})
}
