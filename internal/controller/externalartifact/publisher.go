package externalartifact

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// Publisher writes the ExternalArtifacts of sources.
type Publisher struct {
	// Client reads and writes ExternalArtifacts at the API server. It must not read unstructured
	// objects from a cache. Required.
	Client client.Client
}

// Error says why an ExternalArtifact was not written.
type Error struct {
	// Reason is the reason of the source's condition: meta.ReasonExternalArtifactRefused or
	// meta.ReasonExternalArtifactUnavailable.
	Reason string
	// Passing says that the obstacle disappears by itself, usually within moments. Other obstacles
	// stay until somebody removes them. No event reports the removal, so the caller must try again.
	Passing bool
	// Fix is the next step for a person, in one sentence.
	Fix string
	// Err is the detail; never nil.
	Err error
}

// Error returns "<detail>; <fix>".
func (e *Error) Error() string { return e.Err.Error() + "; " + e.Fix }

// Unwrap returns the detail.
func (e *Error) Unwrap() error { return e.Err }

// attempts is how often a change is tried if somebody else changes the object first.
const attempts = 3

// Publish writes the offer to the source's ExternalArtifact, and creates the ExternalArtifact if
// needed. It writes only differences. The error is an *Error, or an error of the API server.
func (p *Publisher) Publish(ctx context.Context, s Source, offer Offer) error {
	return persist(func() error { return p.publish(ctx, s, offer) })
}

// Withdraw deletes the source's ExternalArtifact. It does nothing if the ExternalArtifact does not
// exist or belongs to somebody else. The error is an *Error if the controller may not read or
// delete ExternalArtifacts. Other errors are from the API server.
func (p *Publisher) Withdraw(ctx context.Context, s Source) error {
	return persist(func() error { return p.withdraw(ctx, s) })
}

// persist repeats the change if somebody else changed the object first.
func persist(change func() error) error {
	for left := attempts; ; left-- {
		err := change()
		if left == 1 || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

func (p *Publisher) publish(ctx context.Context, s Source, offer Offer) error {
	o, err := p.get(ctx, s)
	switch {
	case apierrors.IsNotFound(err):
		o = s.fresh()
		if err := p.Client.Create(ctx, o); err != nil {
			return explain(s, err)
		}
	case err != nil:
		return explain(s, err)
	case s.owned(o) && !s.owns(o):
		return &Error{
			Reason:  meta.ReasonExternalArtifactUnavailable,
			Passing: true,
			Fix:     "wait for the cluster's garbage collector, or delete it",
			Err:     fmt.Errorf("ExternalArtifact %s/%s was made for an earlier %s of this name", s.Namespace, s.Name, s.Kind),
		}
	case !s.owns(o):
		return &Error{
			Reason: meta.ReasonExternalArtifactRefused,
			Fix:    "delete or rename it, rename this object, or set spec.externalArtifact to false",
			Err:    fmt.Errorf("ExternalArtifact %s/%s exists and was not made for this object", s.Namespace, s.Name),
		}
	case o.GetDeletionTimestamp() != nil:
		return &Error{
			Reason:  meta.ReasonExternalArtifactUnavailable,
			Passing: true,
			Fix:     "find out which of its finalizers keeps it",
			Err:     fmt.Errorf("ExternalArtifact %s/%s is being deleted", s.Namespace, s.Name),
		}
	}
	err = p.patch(o, func() { s.describe(o) }, func(patch client.Patch) error { return p.Client.Patch(ctx, o, patch) })
	if err == nil {
		err = p.patch(o, func() { s.offer(o, offer) }, func(patch client.Patch) error { return p.Client.Status().Patch(ctx, o, patch) })
	}
	return explain(s, err)
}

// patch changes the object and writes the difference, if there is one. The write fails if somebody
// else changed the object since it was read.
func (*Publisher) patch(o *unstructured.Unstructured, change func(), write func(client.Patch) error) error {
	before := o.DeepCopy()
	change()
	if equality.Semantic.DeepEqual(before.Object, o.Object) {
		return nil
	}
	return write(client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (p *Publisher) withdraw(ctx context.Context, s Source) error {
	o, err := p.get(ctx, s)
	switch {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return nil
	case err != nil:
		return s.left(explain(s, err))
	case !s.owns(o), o.GetDeletionTimestamp() != nil:
		return nil
	}
	// Delete only the object that was checked.
	uid, seen := o.GetUID(), o.GetResourceVersion()
	err = p.Client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &seen})
	return s.left(explain(s, client.IgnoreNotFound(err)))
}

// left replaces the Fix of an *Error of [Publisher.Withdraw], after which an ExternalArtifact may
// be left. The new Fix says how to remove it. The usual Fix, to set spec.externalArtifact to false,
// does not help: Withdraw is called when it is false. left returns other errors unchanged.
func (s Source) left(err error) error {
	if refused, ok := errors.AsType[*Error](err); ok {
		refused.Fix = "have the administrator set flux.externalArtifacts in the Helm chart until it is gone, or delete ExternalArtifact " +
			s.Namespace + "/" + s.Name + " if there is one"
	}
	return err
}

func (p *Publisher) get(ctx context.Context, s Source) (*unstructured.Unstructured, error) {
	o := empty()
	return o, p.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Name}, o)
}

// explain turns a refusal of the API server into an *Error. It does not change an error that
// reports a conflict, because the caller tries again after it.
func explain(s Source, err error) error {
	switch {
	case err == nil || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return err
	case apimeta.IsNoMatchError(err), apierrors.IsNotFound(err):
		// After the CustomResourceDefinition was removed, the API server answers "not found".
		return &Error{
			Reason: meta.ReasonExternalArtifactUnavailable,
			Fix:    "install Flux 2.7 or newer, or set spec.externalArtifact to false",
			Err:    fmt.Errorf("the cluster has no %s.%s of version %s: its CustomResourceDefinition is Flux's", resource, group, version),
		}
	case apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &Error{
			Reason: meta.ReasonExternalArtifactUnavailable,
			Fix:    "have the administrator set flux.externalArtifacts in the Helm chart, or set spec.externalArtifact to false",
			Err:    errors.New("the controller may not write " + resource + "." + group),
		}
	default:
		return fmt.Errorf("write ExternalArtifact %s/%s: %w", s.Namespace, s.Name, err)
	}
}
