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

// Identity is an API object of one of the four kinds of AWS identities.
type Identity interface {
	object.Object

	// GetIdentityStatus returns a pointer to the object's status, for reading and writing.
	GetIdentityStatus() *v1alpha1.AWSIdentityStatus
}

// Options are shared by the reconcilers of all four kinds. All fields are required.
type Options struct {
	// Identities look up AWS identities, and prove them to AWS.
	Identities *identity.Identities
	// Provider exchanges proofs for AWS credentials.
	Provider *aws.Provider
	// Cache caches the credentials. The objects that use the identities share this cache.
	Cache auth.Cache
	// Observer is notified of each exchange.
	Observer auth.Observer
	// Users counts the objects that use an identity.
	Users *Users
}

// Reconciler reconciles the identities of one kind.
type Reconciler[O Identity] = object.Reconciler[O, auth.Subject]

// New makes the reconciler of the kind that the given [kinds.Kind] describes. The kind's objects
// are of type O.
func New[O Identity](shared *object.Shared, entry kinds.Kind, options Options) *Reconciler[O] {
	return object.New(shared, entry.Kind, &kind[O]{options, entry})
}

// kind implements object.Kind for one of the four kinds of AWS identities. The method Decide
// returns the plan for an object. Here, the plan is only the [auth.Subject] that names the
// identity.
type kind[O Identity] struct {
	Options

	entry kinds.Kind
}

// interval is the time between two reconciliations of an identity. Changes of the identity, of its
// sources and of the objects that use it cause an earlier reconciliation.
//
// Each reconciliation gets a credential, to describe it in the status. By default, the cache serves
// a credential for an hour at most, and refreshes it only when it is used. If no object uses the
// identity, the credential of the previous reconciliation is too old. So the status of an unused
// identity costs one exchange per interval.
const interval = time.Hour

// Empty implements object.Definition.
func (k *kind[O]) Empty() (O, client.ObjectList) { return k.entry.New().(O), k.entry.NewList() }

// View implements object.Definition. The finalizer is added before an object can use the identity,
// so that no used identity is deleted.
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

// Passing marks an error as retryable if the controller's cache does not have the ServiceAccount of
// an AWSServiceAccountIdentity. The cache may be behind, and no event reports when it has caught
// up. Other errors need no retry: the change that repairs their cause wakes the object.
func Passing(subject auth.Subject, err error) error {
	if auth.CodeOf(err) == auth.CodeSubjectNotFound && subject.Kind() == v1alpha1.AWSServiceAccountIdentityKind {
		return object.Retryable(err)
	}
	return err
}

// Act implements object.Kind. It gets the same credential that the users of the identity get.
func (k *kind[O]) Act(ctx context.Context, o O, subject auth.Subject, _ func(context.Context) error) (object.News, error) {
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
		return object.News{}, err
	}
	session, ok := token.(*aws.Token)
	if !ok {
		return object.News{}, fmt.Errorf("a %T is not a session of AWS", token)
	}
	status.AccountID, status.ARN, status.ExpiresAt = session.AccountID, session.ARN, &metav1.Time{Time: session.ExpiresAt}
	return object.News{}, nil
}

// forgetSession removes the last session from the status after a failure. The session stays only if
// the spec is unchanged, and the failure is temporary.
func forgetSession(o Identity, status *v1alpha1.AWSIdentityStatus, err error) {
	if !auth.IsTemporary(err) || status.ObservedGeneration != o.GetGeneration() {
		status.AccountID, status.ARN, status.ExpiresAt = "", "", nil
	}
}

// region returns the region of AWS STS for the identity. Empty means the program's own region. For
// a role in another partition, the result is the main region of that partition.
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
	// Ignore the error: even with an error, chain has the identities that could be found.
	chain, _ := k.Identities.Chain(ctx, subject)
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

// lentTo returns a warning if the grant admits every namespace, or if there is no grant.
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

// Finalize implements object.Kind. It refuses to delete an identity that objects use.
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

// inUseError says that objects use an identity, so that it cannot be deleted.
type inUseError struct{ users int32 }

func (e *inUseError) Error() string {
	return fmt.Sprintf("%d objects use the identity; it is deleted when they name another one, are deleted, or are no longer admitted by spec.allowedNamespaces", e.users)
}

// Explain implements object.Definition. An identity in use needs no retries, because a change of
// the objects that use the identity wakes it.
func (*kind[O]) Explain(err error) (object.Failure, bool) {
	if _, ok := errors.AsType[*inUseError](err); ok {
		return object.Failure{Reason: meta.ReasonIdentityInUse, Stalled: true}, true
	}
	return object.Failure{}, false
}
