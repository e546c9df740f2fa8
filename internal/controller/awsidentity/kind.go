package awsidentity

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Identity is an API object of one of the four kinds.
type Identity interface {
	object.Object

	// GetIdentityStatus is the object's own status, for reading and writing.
	GetIdentityStatus() *v1alpha1.AWSIdentityStatus
}

// Options are what the reconcilers of all kinds share. All fields are required.
type Options struct {
	// Identities know the identities, and get their credentials.
	Identities *identity.Identities
	// Provider exchanges the proofs.
	Provider *aws.Provider
	// Cache keeps the credentials, together with those of the objects that use the identities.
	Cache auth.Cache
	// Observer hears of the exchanges.
	Observer auth.Observer
	// Users counts the objects that use an identity.
	Users *Users
}

// Reconciler reconciles the identities of one kind.
type Reconciler[O Identity] = object.Reconciler[O, auth.Subject]

// New makes the reconciler of a kind. The entry is that of the kind in the table; its objects are of
// type O.
func New[O Identity](shared *object.Shared, entry kinds.Kind, options Options) *Reconciler[O] {
	return object.New(shared, entry.Kind, &kind[O]{options, entry})
}

// kind is one kind of identity as the frame knows it. The plan is the identity's subject.
type kind[O Identity] struct {
	Options

	entry kinds.Kind
}

// interval is how long after a look an identity is looked at again. Changes of the identity, of its
// sources and of the objects that use it wake it earlier. A credential lives about as long, so that
// the status of an identity that nobody uses costs one exchange each time.
const interval = time.Hour

// Empty implements object.Definition.
func (k *kind[O]) Empty() (O, client.ObjectList) { return k.entry.New().(O), k.entry.NewList() }

// View implements object.Definition. The finalizer is there before the first object can use the
// identity.
func (k *kind[O]) View(o O) object.View {
	return object.View{Interval: interval, Finalizer: true, DependsOn: []object.Dependency{
		{Kind: k.entry.Kind, Namespace: o.GetNamespace(), Name: o.GetName()},
	}}
}

// Decide implements object.Kind.
func (k *kind[O]) Decide(ctx context.Context, o O) (auth.Subject, error) {
	subject, err := spec.AWSIdentity(k.entry.Kind, o.GetNamespace(), o.GetName())
	if err != nil {
		return auth.Subject{}, err
	}
	_, err = k.Identities.Chain(ctx, subject)
	return subject, Passing(subject, err)
}

// Passing marks the error of a ServiceAccount that memory does not have: memory may only be behind,
// and nobody tells when it has caught up. All other errors are noticed when they are mended.
func Passing(subject auth.Subject, err error) error {
	if auth.CodeOf(err) == auth.CodeSubjectNotFound && subject.Kind() == v1alpha1.AWSServiceAccountIdentityKind {
		return object.Retryable(err)
	}
	return err
}

// Act implements object.Kind. It gets the credential that the objects get which use the identity.
func (k *kind[O]) Act(ctx context.Context, o O, subject auth.Subject) (news string, err error) {
	own := k.Identities.Own()
	options := []auth.Option{
		auth.WithSubject(subject, own), auth.WithSTSRegion(k.region(ctx, own, subject)), auth.WithObserver(k.Observer),
		auth.WithCache(k.Cache, auth.InvolvedObject{Kind: k.entry.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), Operation: "reconcile"}),
	}
	if object.RetryNow(o) {
		options = append(options, auth.WithRetryNow())
	}
	status := o.GetIdentityStatus()
	token, err := auth.GetToken(ctx, k.Provider, options...)
	if err != nil {
		forgetSession(o, status, err)
		return "", err
	}
	session, ok := token.(*aws.Token)
	if !ok {
		return "", fmt.Errorf("a %T is not a session of AWS", token)
	}
	status.AccountID, status.ARN, status.ExpiresAt = session.AccountID, session.ARN, &metav1.Time{Time: session.ExpiresAt}
	return "", nil
}

// forgetSession removes the last session from the status. It stays only if the spec is the same,
// and the failure may pass.
func forgetSession(o Identity, status *v1alpha1.AWSIdentityStatus, err error) {
	if !auth.IsTemporary(err) || status.ObservedGeneration != o.GetGeneration() {
		status.AccountID, status.ARN, status.ExpiresAt = "", "", nil
	}
}

// region returns the region of AWS STS for the identity: empty for the program's own region, and
// the main region of the role's partition if the program's is in another one.
func (k *kind[O]) region(ctx context.Context, own auth.AccountReader, subject auth.Subject) string {
	account, err := own.Lookup(ctx, subject)
	if err != nil {
		return ""
	}
	arn, err := k.Provider.GetIdentity(account)
	if err != nil {
		return ""
	}
	role, err := endpoint.ParseRoleARN(arn)
	if err != nil || role.Partition == k.Provider.Region().Partition.ID {
		return ""
	}
	for _, partition := range endpoint.AWSPartitions() {
		if partition.ID == role.Partition {
			return partition.GlobalRegion
		}
	}
	return ""
}

// Report implements object.Kind.
func (k *kind[O]) Report(ctx context.Context, o O, outcome object.Outcome) (found string, err error) {
	subject, err := spec.AWSIdentity(k.entry.Kind, o.GetNamespace(), o.GetName())
	if err != nil {
		return "", err
	}
	status := o.GetIdentityStatus()
	if outcome.Refused {
		forgetSession(o, status, outcome.Err)
	}
	chain, _ := k.Identities.Chain(ctx, subject) // with an error, as far as the chain is known
	status.Chain = nil
	for _, link := range chain {
		status.Chain = append(status.Chain, string(link.Kind())+"/"+link.Name())
	}
	users, err := k.Users.Count(ctx, subject)
	if err != nil {
		return "", err
	}
	status.UsedBy = users
	if !outcome.Fulfilled() {
		return "", nil
	}
	return "gives credentials of " + status.ARN + lentTo(o), nil
}

// lentTo warns of a grant that admits every namespace.
func lentTo(o any) string {
	var allowed *v1alpha1.AllowedNamespaces
	switch o := o.(type) {
	case *v1alpha1.AWSClusterControllerIdentity:
		allowed = o.Spec.AllowedNamespaces
	case *v1alpha1.AWSClusterStaticIdentity:
		allowed = o.Spec.AllowedNamespaces
	case *v1alpha1.AWSClusterRoleIdentity:
		allowed = o.Spec.AllowedNamespaces
	default:
		return ""
	}
	switch {
	case allowed == nil:
		return "; no namespace may use it, because spec.allowedNamespaces is not set"
	case allowed.All:
		return "; every namespace may use it, because spec.allowedNamespaces is {}"
	default:
		return ""
	}
}

// Finalize implements object.Kind. An identity that objects use stays.
func (k *kind[O]) Finalize(ctx context.Context, o O) error {
	subject, err := spec.AWSIdentity(k.entry.Kind, o.GetNamespace(), o.GetName())
	if err != nil {
		return nil //nolint:nilerr // no object can name such an identity
	}
	users, err := k.Users.Count(ctx, subject)
	if err != nil {
		return err
	}
	o.GetIdentityStatus().UsedBy = users
	if users > 0 {
		return &inUseError{users: users}
	}
	return nil
}

// inUseError says that an identity is not deleted because objects use it.
type inUseError struct{ users int32 }

func (e *inUseError) Error() string {
	return fmt.Sprintf("%d objects use the identity; it is deleted when they name another one, are deleted, or are no longer admitted by spec.allowedNamespaces", e.users)
}

// Explain implements object.Definition. A change of the objects that use the identity wakes it.
func (*kind[O]) Explain(err error) (object.Failure, bool) {
	if _, ok := errors.AsType[*inUseError](err); ok {
		return object.Failure{Reason: meta.ReasonIdentityInUse, Stalled: true}, true
	}
	return object.Failure{}, false
}
