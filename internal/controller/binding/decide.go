package binding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/issuer"
)

// plan describes the credential that goes into the Secret.
type plan struct {
	source

	store identityv1.BindingStore
	// context is the object that a token names; zero if the identity is an AWS identity.
	context auth.ObjectReference
	// account is the cloud account of the identity; empty if the account is unknown.
	account string
	// withdrawn is the reason why the binding must lose its credential; nil if it may have a
	// credential.
	withdrawn error
}

// source is the identity from which a binding gets its credential.
type source struct {
	subject  auth.Subject
	accounts auth.Accounts
	uid      string
	target   identityv1.TargetSystem
	config   map[string]string // fields of the providerConfig, if Lanyard knows the target system
	// audiences are the receivers of a token; empty for an AWS identity.
	audiences []string
	// spec has all settings of the identity that determine its credentials.
	spec any
}

// subjectOf returns the identity that a binding names. An identity of this cluster is in the
// namespace of the binding, or has no namespace. The namespace of an identity at the hub follows
// from the namespace of the binding.
func (k *kind) subjectOf(o *identityv1.WorkloadIdentityBinding) (auth.Subject, error) {
	switch named, ref := o.Spec.WorkloadIdentity, o.Spec.IdentityRef; {
	case (named == nil) == (ref == nil):
		return auth.Subject{}, object.Invalid("spec", "", "name exactly one of workloadIdentity and identityRef")
	case named != nil:
		namespace, err := k.namespaceOf(o)
		if err != nil {
			return auth.Subject{}, err
		}
		return auth.WorkloadIdentity(namespace, named.Name)
	case ref.Kind != identityv1.AWSClusterRoleIdentityKind && ref.Kind != identityv1.AWSServiceAccountIdentityKind:
		return auth.Subject{}, object.Invalid("spec.identityRef.kind", "", "the credential of another kind than %s and %s never leaves Lanyard",
			identityv1.AWSClusterRoleIdentityKind, identityv1.AWSServiceAccountIdentityKind)
	default:
		return spec.AWSIdentity(ref.Kind, o.Namespace, ref.Name)
	}
}

// Decide implements tenant.Kind.
func (k *kind) Decide(ctx context.Context, o *identityv1.WorkloadIdentityBinding, call access.Call) (plan, error) {
	subject, find := call.Identity.Subject, k.awsIdentity
	if subject.Kind() == auth.KindWorkloadIdentity {
		find = k.workloadIdentity
	}
	found, err := find(ctx, o, subject)
	if gone, ok := errors.AsType[*withdrawnError](err); ok {
		return plan{withdrawn: gone.error}, nil
	} else if err != nil {
		return plan{}, err
	}
	if err := checkTarget(o, found.target); err != nil {
		return plan{}, err
	}
	if err := checkFormat(o.Spec.Store.Format, found); err != nil {
		return plan{}, err
	}
	p := plan{source: found, store: o.Spec.Store, account: accountOf(found)}
	if len(found.audiences) > 0 {
		p.context = k.contextOf(o, call.Self)
	}
	switch had := o.Status.Account; {
	case had == "" || object.AllowedAccount(o) == p.account:
	case !sameAccount(p.target.Type, had, p.account):
		return plan{}, &accountError{had: had, has: p.account}
	case !strings.Contains(p.account, "/"):
		// An account may have a part after a slash, such as an Azure subscription. p.account has no
		// such part. Keep the account from the status, which may have one. If the status lost its
		// part, the next edit of the identity could set another one. sameAccount would not notice
		// that, because it compares the parts only if both accounts have one.
		p.account = had
	}
	return p, nil
}

// withdrawnError is the reason why a binding must lose the credential of its identity.
type withdrawnError struct{ error }

func (e *withdrawnError) Unwrap() error { return e.error }

// workloadIdentity finds the WorkloadIdentity of a binding. The cache may be behind. So
// workloadIdentity asks the API server about an identity that the cache lacks.
func (k *kind) workloadIdentity(ctx context.Context, o *identityv1.WorkloadIdentityBinding, subject auth.Subject) (source, error) {
	found := &identityv1.WorkloadIdentity{}
	err := k.read(ctx, client.ObjectKey{Namespace: subject.Namespace(), Name: subject.Name()}, found)
	if apierrors.IsNotFound(err) || err == nil && !found.DeletionTimestamp.IsZero() {
		if _, err := k.WorkloadIdentities.Read(ctx, subject); auth.CodeOf(err) == auth.CodeSubjectNotFound {
			return source{}, &withdrawnError{err}
		} else if err != nil {
			return source{}, k.atHub(subject, err)
		}
		return source{}, fmt.Errorf("WorkloadIdentity %s is too new to be known", subject.Name())
	} else if err != nil {
		return source{}, fmt.Errorf("read WorkloadIdentity %s: %w", subject.Name(), err)
	}
	if errs := k.validate(found); len(errs) > 0 {
		return source{}, object.Invalid("spec.workloadIdentity", "correct the WorkloadIdentity", "WorkloadIdentity %s: %w", found.Name, errs.ToAggregate())
	}
	target := found.Spec.TargetSystem
	// k.validate has already checked the providerConfig.
	config, _ := issuer.ProviderConfig(&target, field.NewPath("spec"))
	return source{
		subject: subject, accounts: lend(k.WorkloadIdentities, o, string(found.UID)), uid: string(found.UID),
		target: target, config: config, audiences: found.Spec.Audiences, spec: found.Spec,
	}, nil
}

// awsIdentity finds the AWS identity of a binding, and checks the grants of the identity and of all
// its sources.
func (k *kind) awsIdentity(ctx context.Context, o *identityv1.WorkloadIdentityBinding, subject auth.Subject) (source, error) {
	switch {
	case k.Identities == nil:
		return source{}, object.Invalid("spec.identityRef", "have the administrator set identity.awsIdentities of the Helm chart", "this cluster has no AWS identities")
	case !k.IdentitiesSynced():
		return source{}, errors.New("the AWS identities are not all known yet")
	}
	own := k.Identities.For(o.Namespace)
	account, err := own.Lookup(ctx, subject)
	switch {
	case identity.IsUsageRefused(err):
		return source{}, &withdrawnError{err}
	case auth.CodeOf(err) == auth.CodeSubjectNotFound:
		return source{}, &withdrawnError{awsidentity.Passing(subject, err)}
	case err != nil:
		return source{}, err
	}
	return source{
		subject: subject, accounts: lend(own, o, account.UID), uid: account.UID,
		target: identityv1.TargetSystem{Type: identityv1.TargetAWS}, config: map[string]string{"iamRoleARN": account.Attributes["roleARN"]}, spec: account.Attributes,
	}, nil
}

// checkTarget refuses an identity whose target system differs from that of the binding.
func checkTarget(o *identityv1.WorkloadIdentityBinding, target identityv1.TargetSystem) error {
	switch {
	case o.Spec.Type != "" && o.Spec.Type != target.Type:
		return object.Invalid("spec.type", "correct it, or name another identity", "it is %s, and the identity is for %s", o.Spec.Type, target.Type)
	case o.Status.Type != "" && o.Status.Type != target.Type:
		return object.Invalid("spec", "create another binding, with another Secret",
			"the Secret has a credential for %s, and the identity is for %s: who reads the Secret does not expect that", o.Status.Type, target.Type)
	case o.Spec.ProviderConfig != nil && !equalJSON(o.Spec.ProviderConfig, target.ProviderConfig):
		return object.Invalid("spec.providerConfig", "correct it, or leave it out", "it is not that of the identity")
	}
	return nil
}

// equalJSON reports whether two objects are equal, whatever the order of their fields.
func equalJSON(a, b *runtime.RawExtension) bool {
	if b == nil {
		return false
	}
	var values [2]any
	for i, raw := range [][]byte{a.Raw, b.Raw} {
		if json.Unmarshal(raw, &values[i]) != nil {
			return false
		}
	}
	return equality.Semantic.DeepEqual(values[0], values[1])
}

// checkFormat refuses a format for which the identity has no credential.
func checkFormat(format identityv1.StoreFormat, found source) error {
	const at = "spec.store.format"
	switch target := found.target.Type; {
	case !delivery.Exchanged(format) && len(found.audiences) == 0:
		return object.Invalid(at, "write aws-session-keys or dockerconfigjson", "an AWS identity has no token")
	case format == identityv1.StoreAWSSessionKeys && target != identityv1.TargetAWS:
		return object.Invalid(at, "write sdk or token", "the identity is for %s, where nobody has sessions of AWS", target)
	case format == identityv1.StoreDockerConfigJSON && target != identityv1.TargetAWS && target != identityv1.TargetAzure && target != identityv1.TargetGCP:
		return object.Invalid(at, "write sdk or token", "Lanyard can log in at registries of aws, azure and gcp only, and the identity is for %s", target)
	}
	return nil
}

// contextOf returns the object to name in the tokens of a binding. The default is the binding
// itself. With a hub there is no default, because the hub does not have the binding.
func (k *kind) contextOf(o *identityv1.WorkloadIdentityBinding, self auth.ObjectReference) auth.ObjectReference {
	if c := o.Spec.ContextObject; c != nil {
		return auth.ObjectReference{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}
	}
	if k.Hub != nil {
		return auth.ObjectReference{}
	}
	return self
}

// accountOf returns the cloud account of an identity, or an empty text if the account is unknown.
// The identity may also name a part of the account, such as a subscription. This part follows after
// a slash.
func accountOf(found source) string {
	switch found.target.Type {
	case identityv1.TargetAWS:
		if assumed, err := endpoint.ParseAssumption(found.config["assumeRole"]); err == nil && assumed.Role.Account != "" {
			// The credential acts in the account of the role in assumeRole. The role in iamRoleARN
			// only assumes that role.
			return assumed.Role.Account
		}
		role, _ := endpoint.ParseRoleARN(found.config["iamRoleARN"])
		return role.Account
	case identityv1.TargetAzure:
		return within(strings.ToLower(found.config["tenantID"]), strings.ToLower(found.config["subscriptionID"]))
	case identityv1.TargetGCP:
		provider, _ := endpoint.ParseGCPWorkloadProvider(found.config["workloadIdentityProvider"])
		return within(provider.ProjectNumber, gcpProject(found.config))
	case identityv1.TargetAlibaba:
		if parts := strings.Split(found.config["roleARN"], ":"); len(parts) == 5 { // acs:ram::<account>:role/<name>
			return parts[3]
		}
	}
	return ""
}

// gcpProject returns the ID of the project in which an identity acts. The ID is in the address of
// the service account. If the address lacks the ID, gcpProject returns config["projectID"]. This is
// the project that is configured for clients. It may be empty.
func gcpProject(config map[string]string) string {
	_, host, _ := strings.Cut(config["serviceAccountEmail"], "@")
	domain, ok := strings.CutSuffix(host, ".iam.gserviceaccount.com")
	// Addresses of default service accounts do not have the project's ID.
	if !ok || strings.HasPrefix(domain, "developer.") {
		return config["projectID"]
	}
	if project, scope, scoped := strings.Cut(domain, "."); scoped {
		return scope + ":" + project
	}
	return domain
}

// sameAccount reports whether an identity still has the account that it had. If only one of the two
// accounts has a part after a slash, the parts are not compared.
func sameAccount(target, had, has string) bool {
	account, part, _ := strings.Cut(had, "/")
	other, otherPart, _ := strings.Cut(has, "/")
	switch {
	case part == "" || otherPart == "":
		return account == other
	case target == identityv1.TargetGCP:
		// The text before the slash is the project of the workload identity pool, which may
		// change. The part after the slash is the identity's project, which must stay the same.
		return part == otherPart
	}
	return had == has
}

// within returns the text account/part, or the account alone if part is empty.
func within(account, part string) string {
	if part == "" {
		return account
	}
	return account + "/" + part
}
