package source

import (
	"context"
	"errors"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
)

// publish has the object's ExternalArtifact offer what the status names, or takes back what was published before, and says in the
// condition how that went. offer is what there is to say of the artifact.
func (r *Reconciler[O, P]) publish(ctx context.Context, o O, offer externalartifact.Offer) error {
	view := r.kind.View(o)
	source := externalartifact.Source{Kind: r.name, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
	var err error
	switch {
	case view.Publish && view.Artifact == nil:
		markUnpublished(o, view.Status)
		return nil
	case view.Publish:
		offer.Artifact = view.Artifact
		err = r.shared.External.Publish(ctx, source, offer)
	case published(view.Status):
		if err = r.shared.External.Withdraw(ctx, source); err == nil {
			unset(view.Status, meta.ConditionExternalArtifactPublished)
			return nil
		}
	default:
		return nil
	}
	if err != nil {
		err = &publishError{err}
	}
	markPublished(o, view, err)
	if _, lacking := errors.AsType[*externalartifact.Error](err); lacking && !view.Publish {
		return nil // the spec asks for none, and without the right to look there may be none: the condition says so
	}
	return err
}

// publishError is an artifact that is stored and not published.
type publishError struct{ err error }

func (e *publishError) Error() string { return e.err.Error() }
func (e *publishError) Unwrap() error { return e.err }

// failure explains the error. Nobody tells us when the cluster, the controller's rights or another's object change, so these are
// looked at once per interval.
func (e *publishError) failure() Failure {
	refused, ok := errors.AsType[*externalartifact.Error](e.err)
	if !ok {
		return Failure{Reason: meta.ReasonInternalError}
	}
	return Failure{Reason: refused.Reason, AtInterval: !refused.Passing}
}

// published reports whether there may be an ExternalArtifact of the object: the condition is written before it is made.
func published(status *meta.Status) bool {
	return apimeta.FindStatusCondition(status.Conditions, meta.ConditionExternalArtifactPublished) != nil
}

// announce says that something will be published, before it is: a controller that is killed in between takes it back later.
func announce(o client.Object, v View) {
	if v.Publish && !published(v.Status) {
		markUnpublished(o, v.Status)
	}
}

// markUnpublished says that nothing was published yet.
func markUnpublished(o client.Object, status *meta.Status) {
	set(o, status, meta.ConditionExternalArtifactPublished, metav1.ConditionUnknown, meta.ReasonProgressing, "no artifact was published yet")
}

// markPublished says what the ExternalArtifact offers, or what is in the way.
func markPublished(o client.Object, v View, err error) {
	if err != nil {
		f := explain(err, func(error) (Failure, bool) { return Failure{}, false })
		set(o, v.Status, meta.ConditionExternalArtifactPublished, metav1.ConditionFalse, f.Reason, f.Message)
		return
	}
	set(o, v.Status, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded,
		"ExternalArtifact "+o.GetName()+" offers revision "+v.Artifact.Revision)
}
