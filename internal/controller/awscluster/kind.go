package awscluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/clouds/awsclient"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Options configure the reconciler. All fields except Manage and CreateControllerIdentity are
// required.
type Options struct {
	// Identities check the grants of AWS identities, and prove the identities to AWS.
	Identities *identity.Identities
	// Provider exchanges proofs for AWS credentials.
	Provider *aws.Provider
	// Cache caches the credentials.
	Cache auth.Cache
	// Observer is notified of each exchange.
	Observer auth.Observer
	// Memory lists AWSClusters from a cache with the index of [AddIndex].
	Memory client.Reader
	// Manage does the work of a controller that manages clusters. Manage runs after the identity's
	// credential was retrieved and the credential's account was checked. It makes its AWS clients
	// from the scope. Nil: the reconciler only checks the identity.
	Manage func(ctx context.Context, o *v1alpha1.AWSCluster, scope awsclient.Scope) error
	// CreateControllerIdentity creates the AWSClusterControllerIdentity with the name default if it
	// does not exist and an AWSCluster needs it. Nil: the administrator creates it.
	CreateControllerIdentity func(ctx context.Context) error
}

// Reconciler reconciles AWSClusters.
type Reconciler = tenant.Reconciler[*v1alpha1.AWSCluster, plan]

// New makes the reconciler.
func New(shared *tenant.Shared, options Options) *Reconciler {
	return tenant.New(shared, kinds.AWSCluster(), &kind{options})
}

// kind implements tenant.Kind.
type kind struct{ Options }

// plan has the AWS identity of an AWSCluster. The grants of the identity have been checked.
type plan struct {
	subject  auth.Subject
	accounts auth.Accounts
	region   endpoint.AWSRegion
	// missing is not nil if the AWSClusterControllerIdentity "default" must be created first. The
	// AWSCluster reports this error until the manager's cache has the created identity.
	missing error
}

// interval is the time between two reconciliations of an AWSCluster. A credential lives longer. So
// a reconciliation finds the credential in the token cache, and needs no exchange. The token cache
// refreshes credentials that are in use.
const interval = 10 * time.Minute

// View implements tenant.Kind. An AWSCluster has no finalizer, because its deletion leaves nothing
// to clean up.
func (*kind) View(*v1alpha1.AWSCluster) object.View { return object.View{Interval: interval} }

// Subject implements tenant.Kind.
func (*kind) Subject(o *v1alpha1.AWSCluster) auth.Subject {
	subject, _ := subjectOf(o)
	return subject
}

// Identify implements tenant.Kind.
func (*kind) Identify(_ context.Context, o *v1alpha1.AWSCluster) (spec.Identity, error) {
	subject, err := subjectOf(o)
	if err != nil {
		return spec.Identity{}, object.Invalid("spec.identityRef", "", "%w", err)
	}
	return spec.Identity{Subject: subject}, nil
}

// subjectOf returns the AWS identity that an AWSCluster names.
func subjectOf(o *v1alpha1.AWSCluster) (auth.Subject, error) {
	ref := kinds.AWSClusterIdentity(o)
	return spec.AWSIdentity(ref.Kind, o.Namespace, ref.Name)
}

// Decide implements tenant.Kind. It checks the grants of the AWSCluster's identity and of all the
// identity's sources.
func (k *kind) Decide(ctx context.Context, o *v1alpha1.AWSCluster, call access.Call) (plan, error) {
	region, err := endpoint.ParseAWSRegion(o.Spec.Region)
	if err != nil {
		return plan{}, object.Invalid("spec.region", "", "%w", err)
	}
	if o.Spec.AccountID != "" && !isAccount(o.Spec.AccountID) {
		return plan{}, object.Invalid("spec.accountID", "write twelve digits, or leave it out", "it is not the ID of an AWS account")
	}
	subject := call.Identity.Subject
	err = k.Identities.Begin(ctx, o.Namespace, subject)
	if identity.ReasonOf(err) == meta.ReasonControllerIdentityMissing && k.CreateControllerIdentity != nil {
		return plan{subject: subject, missing: err}, nil
	}
	if err != nil {
		return plan{}, awsidentity.Passing(subject, err)
	}
	return plan{subject: subject, accounts: k.Identities.For(o.Namespace), region: region}, nil
}

// isAccount reports whether the text is the ID of an AWS account.
func isAccount(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return len(text) == 12
}

// Act implements tenant.Kind. It gets the credential, compares the credential's account with the
// spec, and calls Manage. If the AWSClusterControllerIdentity is missing, Act creates it. Its
// creation causes another reconciliation of the AWSCluster.
func (k *kind) Act(ctx context.Context, o *v1alpha1.AWSCluster, p plan, call access.Call) (news string, err error) {
	if p.missing != nil {
		if err := k.CreateControllerIdentity(ctx); err != nil {
			return "", err
		}
		forgetSession(o, p.subject, p.missing)
		return "", p.missing
	}
	options := k.credential(call, p)
	if call.RetryNow {
		options = append(options, auth.WithRetryNow())
	}
	const retrieved = v1alpha1.ConditionPrincipalCredentialRetrieved
	token, key, err := auth.GetTokenAndKey(ctx, k.Provider, options...)
	if err != nil {
		forgetSession(o, p.subject, err)
		object.SetCondition(o, retrieved, metav1.ConditionFalse, meta.ReasonPrincipalCredentialRetrievalFailed, object.Explain(err, k.Explain).Message)
		return "", err
	}
	session, ok := token.(*aws.Token)
	if !ok {
		return "", fmt.Errorf("a %T is not a session of AWS", token)
	}
	o.Status.Identity = &meta.Identity{Subject: key.Subject.String(), Provider: aws.ProviderName, CloudIdentity: key.Identity}
	o.Status.AccountID = session.AccountID
	object.SetCondition(o, retrieved, metav1.ConditionTrue, meta.ReasonSucceeded, "a credential of account "+session.AccountID)
	scope := awsclient.Scope{Provider: k.Provider, Options: k.credential(call, p), Region: p.region, AccountID: o.Spec.AccountID}
	if err := scope.CheckAccount(session.AccountID); err != nil || k.Manage == nil {
		return "", err
	}
	return "", k.Manage(ctx, o, scope)
}

// forgetSession removes the last used identity and its account from the status after a failure. It
// keeps them only if the failure is temporary and the spec still names this identity.
func forgetSession(o *v1alpha1.AWSCluster, subject auth.Subject, err error) {
	last := o.Status.Identity
	if !auth.IsTemporary(err) || last != nil && last.Subject != subject.String() {
		o.Status.Identity, o.Status.AccountID = nil, ""
	}
}

// credential returns the options of [auth.GetToken] for the identity of an AWSCluster. In the
// program's partition, all clusters use AWS STS in the program's region, whatever their own region.
// So those of them with the same identity share one credential. A cluster in another partition uses
// AWS STS in its own region.
func (k *kind) credential(call access.Call, p plan) []auth.Option {
	options := []auth.Option{
		auth.WithSubject(p.subject, p.accounts), auth.WithTenant(call.Object.Namespace), auth.WithObserver(k.Observer),
		auth.WithCache(k.Cache, call.Object),
	}
	if k.Provider.Region().Partition.ID != p.region.Partition.ID {
		options = append(options, auth.WithSTSRegion(p.region.Name))
	}
	return options
}

// Report implements tenant.Kind. It sets the conditions that only AWSClusters have, after a success
// and after a failure.
func (k *kind) Report(ctx context.Context, o *v1alpha1.AWSCluster, outcome object.Outcome) (found string, err error) {
	const allowed, retrieved = v1alpha1.ConditionPrincipalUsageAllowed, v1alpha1.ConditionPrincipalCredentialRetrieved
	subject, err := subjectOf(o)
	if outcome.Refused && outcome.Reason != meta.ReasonInvalidSpec {
		forgetSession(o, subject, outcome.Err)
	}
	if err == nil {
		err = k.Identities.Admits(ctx, o.Namespace, subject)
	}
	if err != nil {
		f := object.Explain(err, k.Explain)
		if identity.IsAdmitted(err) {
			k.reportAllowed(o)
		} else {
			object.SetCondition(o, allowed, metav1.ConditionFalse, f.Reason, f.Message)
		}
		object.SetCondition(o, retrieved, metav1.ConditionFalse, f.Reason, "no credential was asked for: "+f.Message)
		object.RemoveCondition(o, v1alpha1.ConditionClusterNameUnique)
		return "", nil
	}
	k.reportAllowed(o)
	if outcome.Reason == meta.ReasonInvalidSpec {
		object.SetCondition(o, retrieved, metav1.ConditionFalse, meta.ReasonPrincipalCredentialRetrievalFailed, outcome.Message)
	}
	if err := k.reportName(ctx, o); err != nil || !outcome.Fulfilled() {
		return "", err
	}
	ref := kinds.AWSClusterIdentity(o)
	return fmt.Sprintf("%s %s gives credentials of account %s", ref.Kind, ref.Name, o.Status.AccountID), nil
}

// reportAllowed sets the condition that says that the namespace may use the identity and its
// sources.
func (*kind) reportAllowed(o *v1alpha1.AWSCluster) {
	ref := kinds.AWSClusterIdentity(o)
	object.SetCondition(o, v1alpha1.ConditionPrincipalUsageAllowed, metav1.ConditionTrue, meta.ReasonSucceeded,
		fmt.Sprintf("namespace %s may use %s %s", o.Namespace, ref.Kind, ref.Name))
}

// reportName sets the condition that says whether another AWSCluster has the same name and account.
// The message does not name the other AWSCluster, which may belong to another tenant.
func (k *kind) reportName(ctx context.Context, o *v1alpha1.AWSCluster) error {
	const unique = v1alpha1.ConditionClusterNameUnique
	if o.Status.AccountID == "" {
		object.RemoveCondition(o, unique)
		return nil
	}
	taken := false
	err := object.Each(ctx, k.Memory, &v1alpha1.AWSClusterList{}, func(other *v1alpha1.AWSCluster) {
		taken = taken || other.Namespace != o.Namespace && other.Status.AccountID == o.Status.AccountID
	}, client.MatchingFields{nameIndex: o.Name})
	if err != nil {
		return fmt.Errorf("list AWSClusters of the name %s: %w", o.Name, err)
	}
	if taken {
		object.SetCondition(o, unique, metav1.ConditionFalse, meta.ReasonClusterNameTaken,
			"another AWSCluster has this name and account, and the AWS cloud provider finds what belongs to a cluster by its name: rename one of them")
	} else {
		object.SetCondition(o, unique, metav1.ConditionTrue, meta.ReasonSucceeded, "no other AWSCluster has this name and account")
	}
	return nil
}

// nameIndex is the name of the index that finds AWSClusters by name.
const nameIndex = "name"

// AddIndex adds the index that the reconciler needs.
func AddIndex(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.AWSCluster{}, nameIndex, func(o client.Object) []string { return []string{o.GetName()} })
	if err != nil {
		return fmt.Errorf("index AWSClusters by name: %w", err)
	}
	return nil
}

// Finalize implements tenant.Kind.
func (*kind) Finalize(context.Context, *v1alpha1.AWSCluster) error { return nil }

// Explain implements tenant.Kind.
func (*kind) Explain(err error) (object.Failure, bool) {
	if _, ok := errors.AsType[*awsclient.AccountError](err); ok {
		return object.Failure{Reason: meta.ReasonAccountMismatch, Stalled: true}, true
	}
	return object.Failure{}, false
}
