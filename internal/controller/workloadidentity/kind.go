package workloadidentity

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/issuer"
)

// Reconciler reconciles WorkloadIdentities.
type Reconciler = object.Reconciler[*identityv1.WorkloadIdentity, string]

// New makes the reconciler. The ring has the keys of the issuer. shared.Dependencies.Subscribe must
// pass its argument to [Ring.Subscribe], so that changes of the ring wake identities.
func New(shared *object.Shared, made *issuer.Issuer, ring *Ring) *Reconciler {
	return object.New(shared, identityv1.WorkloadIdentityKind, &kind{issuer: made, ring: ring})
}

// kind implements object.Kind for WorkloadIdentities. A plan is the value of the claim sub in
// the identity's tokens.
type kind struct {
	issuer *issuer.Issuer
	ring   *Ring
}

// interval is the time between two reconciliations of an identity. Changes of the identity and of
// the ring cause an earlier reconciliation.
const interval = time.Hour

// Empty implements object.Definition.
func (*kind) Empty() (*identityv1.WorkloadIdentity, client.ObjectList) {
	return &identityv1.WorkloadIdentity{}, &identityv1.WorkloadIdentityList{}
}

// View implements object.Definition. An identity has no finalizer, because its deletion leaves
// nothing to clean up.
func (k *kind) View(*identityv1.WorkloadIdentity) object.View {
	return object.View{Interval: interval, DependsOn: []object.Dependency{k.ring.dependency()}}
}

// Decide implements object.Kind. It checks the spec by the rules that the issuer has for token
// requests.
func (k *kind) Decide(_ context.Context, o *identityv1.WorkloadIdentity) (string, error) {
	if errs := k.issuer.Validate(o); len(errs) > 0 {
		return "", invalid(errs)
	}
	return issuer.Subject(o), nil
}

// invalid returns one error that names all wrong fields.
func invalid(errs field.ErrorList) error {
	first, rest := errs[0], errs[1:]
	if len(rest) == 0 {
		return object.Invalid(first.Field, "", "%s", first.ErrorBody())
	}
	return object.Invalid(first.Field, "", "%s; %w", first.ErrorBody(), rest.ToAggregate())
}

// Act implements object.Kind. It writes subject and issuer even if tokens cannot be made yet, so
// that people can write trust policies meanwhile.
func (k *kind) Act(_ context.Context, o *identityv1.WorkloadIdentity, subject string, _ func(context.Context) error) (object.News, error) {
	if o.Status.Issuer != k.issuer.URL {
		o.Status.KeyRing = "" // the recorded ring belongs to another issuer
	}
	o.Status.Sub, o.Status.Issuer = subject, k.issuer.URL
	return object.News{}, nil
}

// Report implements object.Kind.
func (k *kind) Report(ctx context.Context, o *identityv1.WorkloadIdentity, outcome object.Outcome) (found string, err error) {
	if !outcome.Fulfilled() {
		return "", nil
	}
	ring, err := k.ring.check(ctx, o.Spec.SigningAlgorithm)
	if err != nil {
		return "", err // status.keyRing stays, because services remember the keys of that ring
	}
	o.Status.KeyRing = string(ring)
	// The text names no key, so that a rotation of keys does not change the status.
	return "tokens can be requested, and are checked with the keys that " + k.issuer.URL + " publishes", nil
}

// Finalize implements object.Kind.
func (*kind) Finalize(context.Context, *identityv1.WorkloadIdentity) error { return nil }

// Explain implements object.Definition. After a *ringError, the identity is not retried before its
// next interval. That is soon enough, because a change of the KeyRing that concerns identities also
// starts an attempt.
func (*kind) Explain(err error) (object.Failure, bool) {
	if found, ok := errors.AsType[*ringError](err); ok {
		return object.Failure{Reason: found.reason, AtInterval: true}, true
	}
	return object.Failure{}, false
}
