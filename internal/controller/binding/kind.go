package binding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/hub"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// WorkloadIdentities reads identities and makes proofs for them; implemented by
// *kube.WorkloadIdentities.
type WorkloadIdentities interface {
	auth.Accounts
	// Revoked reports whether a key was revoked, so that its signatures are invalid.
	Revoked(kid string) bool
}

// Hub is another cluster, which has the WorkloadIdentities; implemented by *hub.Hub.
type Hub interface {
	// NamespaceOf returns the namespace at the hub that has the identities for a namespace of this
	// cluster. Without such a namespace, the error is a *hub.NotMappedError.
	NamespaceOf(namespace string) (string, error)
	// Get reads an identity by its name at the hub. If the hub does not answer, the error is a
	// *hub.Error.
	Get(ctx context.Context, key client.ObjectKey, identity *identityv1.WorkloadIdentity) error
	// State says whether the hub answers.
	State() hub.State
}

// Options configure the reconciler. Fields are required unless their comments say otherwise.
type Options struct {
	// Issuer validates WorkloadIdentities; nil with a hub, which validates them when it issues a
	// token.
	Issuer *issuer.Issuer
	// WorkloadIdentities reads identities and makes proofs for them. With a hub, these are the
	// hub's identities, otherwise those of this cluster.
	WorkloadIdentities WorkloadIdentities
	// Hub has the WorkloadIdentities; nil if they are in this cluster.
	Hub Hub
	// Identities look up AWS identities and check their grants; nil if the cluster has no AWS
	// identities.
	Identities *identity.Identities
	// IdentitiesSynced reports whether Identities has loaded all objects that existed when the
	// program started. Before that, a missing grant does not count as withdrawn, because the grant
	// may not be loaded yet. Required with Identities.
	IdentitiesSynced func() bool
	// Provider returns the [auth.Provider] with this name, or an error if the name is unknown.
	Provider func(name string) (auth.Provider, error)
	// Observer is notified of each exchange; nil for no observer.
	Observer auth.Observer
	// Client reads WorkloadIdentities from the manager's cache, and Secrets from the API server. It
	// writes Secrets.
	Client client.Client
	// Namespaces reads namespaces from the API server.
	Namespaces client.Reader
	// RenewalFraction is the part of a credential's life after which the credential is renewed,
	// more than 0 and less than 1.
	RenewalFraction float64
	// Renewals count the renewals.
	Renewals *Renewals
}

// Reconciler reconciles WorkloadIdentityBindings.
type Reconciler = tenant.Reconciler[*identityv1.WorkloadIdentityBinding, plan]

// New makes the reconciler.
func New(shared *tenant.Shared, options Options) *Reconciler {
	return tenant.New(shared, kinds.WorkloadIdentityBinding(), &kind{options})
}

// kind implements tenant.Kind.
type kind struct{ Options }

const (
	// look is the time between two reads of a Secret. With the jitter of package object, the time
	// is at most ten minutes.
	look = 9 * time.Minute
	// pause is the lower bound of RetryWithin, so that a credential that ends soon causes no storm
	// of attempts.
	pause = 10 * time.Second
	// retry is the longest pause after a failure.
	retry = 10 * time.Minute
	// spread is the upper limit of StartWithin for bindings that fail. StartWithin bounds the wait
	// for the first reconciliation after a restart of the controller. The limit is short, because
	// the restart may have repaired the failure.
	spread = time.Minute
)

// View implements tenant.Kind. A binding gets the finalizer before the controller creates the
// Secret.
func (k *kind) View(o *identityv1.WorkloadIdentityBinding) object.View {
	view := object.View{Finalizer: true, Renewable: true, Interval: look}
	if waitsForHub(o) {
		view.DependsOn = append(view.DependsOn, HubDependency())
	}
	if at := o.Status.RenewAt; at != nil {
		view.Interval = min(look, max(time.Second, time.Until(at.Time)))
	}
	view.RetryWithin, view.StartWithin = retryWithin(o), pause
	if at := o.Status.ExpiresAt; at != nil {
		view.StartWithin = min(spread, view.RetryWithin)
		if apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady) { // the last reconciliation found or wrote a credential
			view.StartWithin = min(look, max(pause, time.Until(at.Time)/4))
		}
	}
	if kid := o.Status.KID; kid != "" && k.WorkloadIdentities.Revoked(kid) {
		view.StartWithin = 0 // at once: the key may have been revoked while the controller was down
	}
	return view
}

// Subject implements tenant.Kind.
func (k *kind) Subject(o *identityv1.WorkloadIdentityBinding) auth.Subject {
	subject, _ := k.subjectOf(o)
	return subject
}

// Identify implements tenant.Kind.
func (k *kind) Identify(_ context.Context, o *identityv1.WorkloadIdentityBinding) (spec.Identity, error) {
	subject, err := k.subjectOf(o)
	return spec.Identity{Subject: subject}, err
}

// retryWithin returns the longest pause after a failure. It is a tenth of the time until the
// credential expires, or since the credential expired. Without a credential it is zero, so that the
// default of package object applies.
func retryWithin(o *identityv1.WorkloadIdentityBinding) time.Duration {
	at := o.Status.ExpiresAt
	if at == nil {
		return 0
	}
	return min(retry, max(pause, time.Until(at.Time).Abs()/10))
}

// Act implements tenant.Kind. It writes the Secret only if the credential is missing, changed or
// due for renewal.
func (k *kind) Act(ctx context.Context, o *identityv1.WorkloadIdentityBinding, p plan, _ access.Call) (news string, err error) {
	store := storeOf(k.Client, o)
	if p.withdrawn != nil {
		left, err := store.withdraw(ctx)
		if err != nil {
			return "", err
		}
		o.Status.IssuedAt, o.Status.ExpiresAt, o.Status.RenewAt, o.Status.KID = nil, nil, nil, ""
		// Digest and keys in the status record what the binding has written. A Secret that the
		// binding could not empty may still have the credential. So keep the record for such a
		// Secret: the next reconciliation then reports the Secret again.
		if left == nil || left.emptied {
			o.Status.Digest, o.Status.Keys = "", nil
		}
		if left != nil {
			return "", fmt.Errorf("%w; %s", p.withdrawn, left)
		}
		return "", p.withdrawn
	}
	secret, err := store.read(ctx)
	if err != nil {
		return "", err
	}
	if kept, ok := p.find(secret, o.Status.Digest); ok && !k.due(o, kept) {
		k.show(o, p, kept)
		return "", nil
	}
	return "", k.renew(ctx, o, p, store, secret)
}

// due reports whether an unchanged credential must be replaced: on request, because its key was
// revoked, or because its time for renewal has come.
func (k *kind) due(o *identityv1.WorkloadIdentityBinding, kept inSecret) bool {
	return object.RenewalRequested(o) || k.WorkloadIdentities.Revoked(kept.kid) && kept.kid != "" || !time.Now().Before(k.renewAt(o, kept.lifetime))
}

// renew gets a credential and writes the Secret. Without a new credential, the Secret stays as it
// was.
func (k *kind) renew(ctx context.Context, o *identityv1.WorkloadIdentityBinding, p plan, store *store, secret *secretRead) error {
	if p.subject.Lent() {
		// Ignore an error of Lookup, because k.get then fails too, and its error is returned.
		if account, err := p.accounts.Lookup(ctx, p.subject); err == nil {
			identity.LogUse(ctx, o.Namespace, account)
		}
	}
	made, err := k.get(ctx, p)
	var content written
	if err == nil {
		content = p.contentOf(made)
		err = store.write(ctx, secret, content)
	}
	k.Renewals.count(err)
	if err != nil {
		err = k.atHub(p.subject, err)
		if at := o.Status.ExpiresAt; at != nil && time.Now().Before(at.Time) && secret != nil {
			err = fmt.Errorf("%w; the last credential that was written ends at %s", err, at.UTC().Format(time.RFC3339))
		}
		return err
	}
	k.show(o, p, inSecret{made.lifetime, p.digest(content), slices.Sorted(maps.Keys(content.data))})
	return nil
}

// show writes into the status which credential is in the Secret, and how long it lives.
func (k *kind) show(o *identityv1.WorkloadIdentityBinding, p plan, kept inSecret) {
	renewAt := k.renewAt(o, kept.lifetime)
	o.Status.IssuedAt, o.Status.ExpiresAt, o.Status.RenewAt = &metav1.Time{Time: kept.issuedAt}, &metav1.Time{Time: kept.expiresAt}, &metav1.Time{Time: renewAt}
	o.Status.KID, o.Status.Type, o.Status.Account, o.Status.Digest = kept.kid, p.target.Type, p.account, kept.digest
	o.Status.Keys = kept.keys
}

// renewAt returns the time at which to renew a credential. If the status already has a time for
// this credential, renewAt returns that time. Otherwise, the credential is renewed after a fraction
// of its life, with jitter.
//
// The issuer's clock may be wrong. If that clock is ahead, the credential counts as issued now. If
// it is behind, the computed time may already have passed. So the renewal waits for at least a
// fraction of the remaining life. This avoids a storm of renewals.
func (k *kind) renewAt(o *identityv1.WorkloadIdentityBinding, kept lifetime) time.Time {
	s := &o.Status
	if s.RenewAt != nil && s.IssuedAt != nil && s.ExpiresAt != nil && s.IssuedAt.Time.Equal(kept.issuedAt) && s.ExpiresAt.Time.Equal(kept.expiresAt) {
		return s.RenewAt.Time
	}
	now, part, life := time.Now(), k.RenewalFraction*jitter(), kept.expiresAt.Sub(kept.issuedAt)
	began := kept.issuedAt
	if began.After(now) {
		began = now
	}
	at := began.Add(time.Duration(part * float64(life)))
	if earliest := now.Add(time.Duration(part / 2 * float64(kept.expiresAt.Sub(now)))); at.Before(earliest) {
		at = earliest
	}
	return at.Truncate(time.Second).UTC()
}

// Report implements tenant.Kind.
func (k *kind) Report(_ context.Context, o *identityv1.WorkloadIdentityBinding, outcome object.Outcome) (found string, err error) {
	k.showHub(o)
	if !outcome.Fulfilled() {
		return "", nil
	}
	return fmt.Sprintf("Secret %s has a credential until %s", o.Spec.Store.SecretRef.Name, o.Status.ExpiresAt.UTC().Format(time.RFC3339)), nil
}

// Finalize implements tenant.Kind. It removes from the Secret what the binding has written, and
// leaves what others have added. A tenant can keep the Secret, for example with a finalizer.
// Finalize does not wait for the tenant, but returns an [*object.LeftoverError].
func (k *kind) Finalize(ctx context.Context, o *identityv1.WorkloadIdentityBinding) error {
	left, err := storeOf(k.Client, o).remove(ctx)
	if _, forbidden := errors.AsType[*object.ForbiddenError](err); forbidden {
		return k.leaveToNamespace(ctx, o, err)
	}
	if err == nil && left != nil {
		return &object.LeftoverError{Message: left.String()}
	}
	return err
}

// leaveToNamespace returns nil if the binding's namespace is being deleted. Kubernetes then deletes
// the Secret too. It may have deleted the controller's RoleBinding first, so the controller can no
// longer change the Secret. If the namespace stays, leaveToNamespace returns the given error.
func (k *kind) leaveToNamespace(ctx context.Context, o *identityv1.WorkloadIdentityBinding, forbidden error) error {
	namespace := &corev1.Namespace{}
	if err := k.Namespaces.Get(ctx, client.ObjectKey{Name: o.Namespace}, namespace); err != nil {
		return errors.Join(forbidden, fmt.Errorf("get namespace %s: %w", o.Namespace, object.Forbidden(err, "get", "namespaces", "")))
	}
	if namespace.DeletionTimestamp == nil {
		return forbidden
	}
	log.FromContext(ctx).Info("the namespace is being deleted, and the controller may not empty the Secret any more; Kubernetes deletes the Secret",
		"secret", o.Spec.Store.SecretRef.Name, "refusal", forbidden.Error())
	return nil
}

// accountError says that the account of an identity differs from the account of the credential in
// the Secret.
type accountError struct{ had, has string }

func (e *accountError) Error() string {
	return fmt.Sprintf("the Secret has a credential of account %s, and the identity is for account %s; if that is meant, annotate the binding: %s=%s",
		e.had, e.has, meta.AllowAccountChangeAnnotation, e.has)
}

// Explain implements tenant.Kind. An account mismatch stalls the binding. A change of the identity,
// or of the annotation that allows another account, makes the controller try again.
func (*kind) Explain(err error) (object.Failure, bool) {
	if _, ok := errors.AsType[*accountError](err); ok {
		return object.Failure{Reason: meta.ReasonAccountMismatch, Stalled: true}, true
	}
	if rendering, ok := errors.AsType[*delivery.Error](err); ok {
		if strings.HasPrefix(rendering.Field, "spec.") {
			return object.Failure{Reason: meta.ReasonInvalidSpec, Stalled: true}, true
		}
		return object.Failure{Reason: string(auth.CodeResponseInvalid)}, true
	}
	if down, ok := errors.AsType[*hub.Error](err); ok {
		return object.Failure{Reason: down.Reason}, true
	}
	if _, ok := errors.AsType[*hub.NotMappedError](err); ok {
		return object.Failure{Reason: meta.ReasonNamespaceNotMapped, Stalled: true}, true
	}
	return object.Failure{}, false
}
