package binding

import (
	"context"
	"errors"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/issuer"
)

// namespaceOf returns the namespace of the WorkloadIdentity that a binding names.
func (k *kind) namespaceOf(o *identityv1.WorkloadIdentityBinding) (string, error) {
	if k.Hub == nil {
		return o.Namespace, nil
	}
	return k.Hub.NamespaceOf(o.Namespace)
}

// read reads a WorkloadIdentity from the manager's cache or, if there is a hub, from the hub.
func (k *kind) read(ctx context.Context, key client.ObjectKey, identity *identityv1.WorkloadIdentity) error {
	if k.Hub == nil {
		return k.Client.Get(ctx, key, identity)
	}
	return k.Hub.Get(ctx, key, identity)
}

// validate returns the errors in a WorkloadIdentity. If the identity is at the hub, validate checks
// only the providerConfig, which is written into a Secret.
func (k *kind) validate(identity *identityv1.WorkloadIdentity) field.ErrorList {
	if k.Hub == nil {
		return k.Issuer.Validate(identity)
	}
	_, errs := issuer.ProviderConfig(&identity.Spec.TargetSystem, field.NewPath("spec", "targetSystem"))
	return errs
}

// atHub extends an error that the hub may have caused. If the hub does not answer or refuses this
// spoke, the error then says since when; see [hub.Error].
func (k *kind) atHub(subject auth.Subject, err error) error {
	failed, ok := errors.AsType[*auth.Error](err)
	if k.Hub == nil || !ok || subject.Kind() != auth.KindWorkloadIdentity || failed.Stage != auth.StageSubject && failed.Stage != auth.StageTokenRequest {
		return err
	}
	if down := k.Hub.State().Err; down != nil {
		return fmt.Errorf("%v; %w", err, down) //nolint:errorlint // the hub is the cause that counts
	}
	return fmt.Errorf("at the hub: %w", err)
}

// showHub sets the condition HubReachable. If the hub does not answer or refuses this spoke, the
// message says since when; see [hub.Error].
func (k *kind) showHub(o *identityv1.WorkloadIdentityBinding) {
	if k.Hub == nil || o.Spec.WorkloadIdentity == nil {
		return
	}
	shown := metav1.Condition{
		Type: meta.ConditionHubReachable, Status: metav1.ConditionTrue, Reason: meta.ReasonSucceeded, Message: "the hub answers", ObservedGeneration: o.Generation,
	}
	if down := k.Hub.State().Err; down != nil {
		shown.Status, shown.Reason, shown.Message = metav1.ConditionFalse, down.Reason, down.Error()
	}
	apimeta.SetStatusCondition(&o.Status.Conditions, shown)
}

// HubDependency returns the dependency of bindings that wait for the hub to answer again.
func HubDependency() object.Dependency { return object.Dependency{Kind: "Hub"} }

// waitsForHub reports whether a binding must be woken when the hub answers again. This is so if its
// last reconciliation failed because of the hub, or its condition HubReachable is false. Other
// bindings did not notice the failure.
func waitsForHub(o *identityv1.WorkloadIdentityBinding) bool {
	c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady)
	failed := c != nil && (c.Reason == meta.ReasonHubUnreachable || c.Reason == meta.ReasonHubRefused)
	return failed || apimeta.IsStatusConditionFalse(o.Status.Conditions, meta.ConditionHubReachable)
}
