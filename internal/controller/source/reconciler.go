package source

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Shared has the parts that all reconcilers of sources in one controller share. All fields are
// required.
type Shared struct {
	// Shared has the parts that are common to all kinds whose objects act as a tenant.
	*tenant.Shared

	// Artifacts has the store, and finds out which objects have artifacts in the store.
	Artifacts *Artifacts
	// External publishes artifacts to Flux.
	External *externalartifact.Publisher
}

// Reconciler reconciles the sources of one kind.
type Reconciler[O kinds.Keeper, P any] = tenant.Reconciler[O, task[P]]

// New returns the reconciler of the kind that the given [kinds.Kind] describes. It registers the
// kind's objects, which are of type O, with the shared artifacts.
func New[O kinds.Keeper, P any](shared *Shared, entry kinds.Kind, kind Kind[O, P]) *Reconciler[O, P] {
	f := &fetching[O, P]{tenant.Toolkit[O]{Entry: entry, Shared: shared.Shared}, shared, kind}
	shared.Artifacts.kinds = append(shared.Artifacts.kinds, f.claims)
	return tenant.New(shared.Shared, entry, f)
}

// fetching implements tenant.Kind for a kind of source.
type fetching[O kinds.Keeper, P any] struct {
	tenant.Toolkit[O]

	shared *Shared
	kind   Kind[O, P]
}

// task is what Decide hands to Act: the plan that the kind made, and the [Call] with which the
// kind's Fetch carries out the plan.
type task[P any] struct {
	plan P
	call Call
}

// View implements tenant.Kind. Each object gets the finalizer, because its artifact must be removed
// with the object.
func (f *fetching[O, P]) View(o O) object.View {
	view := f.Toolkit.View(o)
	view.Finalizer = true
	return view
}

// Decide implements tenant.Kind.
func (f *fetching[O, P]) Decide(ctx context.Context, o O, own access.Call) (task[P], error) {
	owner := f.owner(o)
	call := Call{own, owner, f.shared.Artifacts.stored(ctx, owner, artifactOf(o))}
	plan, err := f.kind.Decide(o, call)
	return task[P]{plan, call}, err
}

// Act implements tenant.Kind.
func (f *fetching[O, P]) Act(ctx context.Context, o O, t task[P], _ access.Call) (news string, err error) {
	before := artifactOf(o).DeepCopy()
	if err := f.kind.Fetch(ctx, o, t.plan, t.call); err != nil {
		return "", err
	}
	if isAnother(artifactOf(o), before) {
		news = "NewArtifact"
	}
	return news, nil
}

// artifactOf returns the artifact in the status; nil if there is none.
func artifactOf(o kinds.Keeper) *v1alpha1.Artifact { return o.GetArtifactStatus().Artifact }

func isAnother(artifact, old *v1alpha1.Artifact) bool {
	return artifact != nil && (old == nil || old.Revision != artifact.Revision || old.Digest != artifact.Digest)
}

// Report implements tenant.Kind. The ExternalArtifact follows the spec even while the object is
// suspended.
func (f *fetching[O, P]) Report(ctx context.Context, o O, outcome object.Outcome) (found string, err error) {
	defer func() {
		if ctx.Err() == nil {
			f.shared.Artifacts.readiness.try(f.owner(o))
		}
	}()
	artifact := artifactOf(o)
	offer := externalartifact.Offer{Artifact: artifact, Failed: outcome.Reason, Suspended: outcome.Suspended}
	text, err := f.Toolkit.Report(ctx, o, outcome)
	if err != nil {
		return "", err
	}
	// If the spec is fulfilled, Decide has found the artifact in the store, or Fetch has put it
	// there.
	stored := outcome.Fulfilled() && artifact != nil ||
		f.shared.Artifacts.stored(ctx, f.owner(o), artifact)
	if stored {
		object.SetCondition(o, meta.ConditionArtifactInStorage, metav1.ConditionTrue, meta.ReasonSucceeded, text)
	} else {
		object.RemoveCondition(o, meta.ConditionArtifactInStorage)
	}
	if stored || artifact == nil {
		found = text
	} else if outcome.Suspended {
		offer.Failed = meta.ReasonSuspended // a suspended object does not fetch a lost artifact
	}
	return found, f.publish(ctx, o, offer, outcome.Save)
}

// Finalize implements tenant.Kind.
func (f *fetching[O, P]) Finalize(_ context.Context, o O) error {
	return f.shared.Artifacts.remove(f.owner(o))
}

// owner returns the object's key in the store.
func (f *fetching[O, P]) owner(o O) store.Object {
	return store.Object{Kind: strings.ToLower(f.Entry.Kind), Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}

// claims calls the function show with the claim of each object of the kind in the cache.
func (f *fetching[O, P]) claims(ctx context.Context, show func(claim)) error {
	return object.Each(ctx, f.shared.Client, f.Entry.NewList(), func(o O) {
		idle := o.GetSchedule().Suspend || !o.GetDeletionTimestamp().IsZero() || memory.Refused(o) != nil
		c := claim{owner: f.owner(o), idle: idle}
		if artifact := artifactOf(o); artifact != nil {
			c.digest = artifact.Digest
		}
		show(c)
	})
}
