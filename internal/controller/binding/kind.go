package binding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// WorkloadIdentities read and prove WorkloadIdentities; *kube.WorkloadIdentities is one.
type WorkloadIdentities interface {
	auth.Accounts
	// Revoked reports whether the signatures of a key count no more.
	Revoked(kid string) bool
}

// Hub is another cluster, which has the WorkloadIdentities; *hub.Hub is one.
type Hub interface {
	// NamespaceOf returns the namespace at the hub of the identities for a namespace of this
	// cluster, or a *hub.NotMappedError.
	NamespaceOf(namespace string) (string, error)
	// Get reads an identity by its name at the hub. A hub that does not answer is a *hub.Error.
	Get(ctx context.Context, key client.ObjectKey, identity *identityv1.WorkloadIdentity) error
	// State says whether the hub answers.
	State() hub.State
}

// Options are what the reconciler needs. Fields are required unless they say otherwise.
type Options struct {
	// Issuer says which WorkloadIdentities are valid, and what their tokens say; nil with a hub, which
	// judges them when it makes a token.
	Issuer *issuer.Issuer
	// WorkloadIdentities read and prove the identities, those at the hub if there is one.
	WorkloadIdentities WorkloadIdentities
	// Hub has the WorkloadIdentities; nil if they are in this cluster.
	Hub Hub
	// Identities know the AWS identities; nil if the program does not keep them.
	Identities *identity.Identities
	// IdentitiesSynced reports whether Identities know all that was there when the program started:
	// before, a grant that is not known yet is none that was withdrawn. Required with Identities.
	IdentitiesSynced func() bool
	// Provider returns the provider of a cloud. An unknown name is an error.
	Provider func(name string) (auth.Provider, error)
	// Observer hears of the exchanges; nil for none.
	Observer auth.Observer
	// Client reads WorkloadIdentities from memory, and Secrets from the API server. It writes Secrets.
	Client client.Client
	// RenewalFraction is the part of its life after which a credential is renewed, more than 0 and
	// less than 1.
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
	// look is how long after a look a Secret is looked at again: with the frame's jitter, within ten
	// minutes.
	look = 9 * time.Minute
	// pause is the least that the pause after failures grows to, so that a credential that ends soon
	// makes no storm.
	pause = 10 * time.Second
	// retry is the longest pause after a failure.
	retry = 10 * time.Minute
	// spread is the time over which bindings that fail are looked at first: an administrator who
	// starts the controller again, to mend a failure, waits for it.
	spread = time.Minute
)

// View implements tenant.Kind. The finalizer is there before the Secret.
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
		if isReady(o) {
			view.StartWithin = min(look, max(pause, time.Until(at.Time)/4))
		}
	}
	if kid := o.Status.KID; kid != "" && k.WorkloadIdentities.Revoked(kid) {
		view.StartWithin = 0 // nobody told of that while the controller was down
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

// retryWithin bounds the pause after a failure: a tenth of the time until the credential ends or,
// afterwards, since it ended. Zero without a credential, for the frame's own bound.
func retryWithin(o *identityv1.WorkloadIdentityBinding) time.Duration {
	at := o.Status.ExpiresAt
	if at == nil {
		return 0
	}
	return min(retry, max(pause, time.Until(at.Time).Abs()/10))
}

// isReady reports whether the last look found the credential, or wrote it.
func isReady(o *identityv1.WorkloadIdentityBinding) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == meta.ConditionReady {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// Act implements tenant.Kind. A Secret whose credential is right is not written.
func (k *kind) Act(ctx context.Context, o *identityv1.WorkloadIdentityBinding, p plan, _ access.Call) (news string, err error) {
	store := storeOf(k.Client, o)
	secret, err := store.read(ctx)
	if err != nil {
		return "", err
	}
	if p.withdrawn != nil {
		if err := store.withdraw(ctx, secret); err != nil {
			return "", err
		}
		o.Status.IssuedAt, o.Status.ExpiresAt, o.Status.RenewAt, o.Status.KID, o.Status.Digest = nil, nil, nil, "", ""
		return "", p.withdrawn
	}
	if kept, ok := p.find(secret, o.Status.Digest); ok && !k.due(o, kept) {
		k.show(o, p, kept)
		return "", nil
	}
	return "", k.renew(ctx, o, p, store, secret)
}

// due reports whether the credential in the Secret is to be replaced, although it is right.
func (k *kind) due(o *identityv1.WorkloadIdentityBinding, kept inSecret) bool {
	return object.RenewalRequested(o) || k.WorkloadIdentities.Revoked(kept.kid) && kept.kid != "" || !time.Now().Before(k.renewAt(o, kept.lifetime))
}

// renew gets a credential and writes the Secret. After a failure the Secret stays as it was.
func (k *kind) renew(ctx context.Context, o *identityv1.WorkloadIdentityBinding, p plan, store *store, secret *secretRead) error {
	if p.subject.Lent() {
		if account, err := p.accounts.Lookup(ctx, p.subject); err == nil { // otherwise get fails
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
	k.show(o, p, inSecret{made.lifetime, p.digest(content)})
	return nil
}

// show writes into the status which credential is in the Secret, and how long it lives.
func (k *kind) show(o *identityv1.WorkloadIdentityBinding, p plan, kept inSecret) {
	renewAt := k.renewAt(o, kept.lifetime)
	o.Status.IssuedAt, o.Status.ExpiresAt, o.Status.RenewAt = &metav1.Time{Time: kept.issuedAt}, &metav1.Time{Time: kept.expiresAt}, &metav1.Time{Time: renewAt}
	o.Status.KID, o.Status.Type, o.Status.Account, o.Status.Digest = kept.kid, p.target.Type, p.account, kept.digest
}

// renewAt returns when a credential is renewed: what the status says of it or, for a new one, after
// the fraction of its life, jittered. The life begins at once if the issuer's clock is ahead. If
// that clock is behind, the time may have passed already: then the life that is left counts, so
// that a wrong clock makes no storm.
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

// Finalize implements tenant.Kind. It removes what was written, and leaves what others have added.
func (k *kind) Finalize(ctx context.Context, o *identityv1.WorkloadIdentityBinding) error {
	return storeOf(k.Client, o).remove(ctx)
}

// accountError says that an identity is for another account than the Secret's credential.
type accountError struct{ had, has string }

func (e *accountError) Error() string {
	return fmt.Sprintf("the Secret has a credential of account %s, and the identity is for account %s; if that is meant, annotate the binding: %s=%s",
		e.had, e.has, meta.AllowAccountChangeAnnotation, e.has)
}

// Explain implements tenant.Kind. A change of the identity or of the annotation wakes a
// binding that is Stalled.
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
