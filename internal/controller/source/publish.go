package source

import (
	"context"
	"errors"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// publish creates, updates or removes the ExternalArtifact that offers the object's artifact. It
// also sets the condition ExternalArtifactPublished. The condition is saved before the
// ExternalArtifact is created. So the condition shows that an ExternalArtifact may have to be
// removed, even if the controller is killed in between.
func (f *fetching[O, P]) publish(ctx context.Context, o O, offer externalartifact.Offer, save func(context.Context) error) error {
	wanted, announced := o.GetPublication().ExternalArtifact, published(o.GetStatus())
	source := externalartifact.Source{Kind: f.Entry.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
	if !wanted && !announced {
		return nil
	}
	var err error
	switch {
	case wanted && (offer.Artifact == nil || !announced):
		object.SetCondition(o, meta.ConditionExternalArtifactPublished, metav1.ConditionUnknown, meta.ReasonProgressing, "no artifact was published yet")
		if offer.Artifact == nil {
			return nil
		}
		if err := save(ctx); err != nil {
			return err
		}
		fallthrough
	case wanted:
		err = f.shared.External.Publish(ctx, source, offer)
	default:
		if err = f.shared.External.Withdraw(ctx, source); err == nil {
			object.RemoveCondition(o, meta.ConditionExternalArtifactPublished)
			return nil
		}
	}
	if err == nil {
		object.SetCondition(o, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded,
			"ExternalArtifact "+o.GetName()+" offers revision "+offer.Artifact.Revision)
		return nil
	}
	err = &publishError{err}
	failure := object.Explain(err, explain)
	object.SetCondition(o, meta.ConditionExternalArtifactPublished, metav1.ConditionFalse, failure.Reason, failure.Message)
	if _, lacking := errors.AsType[*externalartifact.Error](err); lacking && !wanted {
		// The spec asks for no ExternalArtifact, but one may be left: the controller lacks the
		// right to read or delete it. The condition ExternalArtifactPublished already reports this.
		// So do not report it as a failure of the object too.
		return nil
	}
	return err
}

// publishError is the error for an artifact that is stored but could not be published.
type publishError struct{ err error }

func (e *publishError) Error() string { return e.err.Error() }
func (e *publishError) Unwrap() error { return e.err }

// failure explains the error. Some obstacles disappear by themselves, usually within moments: the
// controller tries again soon. Other obstacles stay until somebody removes them, and no event
// reports the removal. So the controller tries again once per interval.
func (e *publishError) failure() object.Failure {
	refused, ok := errors.AsType[*externalartifact.Error](e.err)
	if !ok {
		return object.Internal(e)
	}
	return object.Failure{Reason: refused.Reason, AtInterval: !refused.Passing}
}

// published reports whether the object has the condition ExternalArtifactPublished. The condition
// is saved before an ExternalArtifact is created. So an object without the condition has no
// ExternalArtifact.
func published(status *meta.Status) bool {
	return apimeta.FindStatusCondition(status.Conditions, meta.ConditionExternalArtifactPublished) != nil
}
