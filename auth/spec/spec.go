package spec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
)

// The fields that name an object's own identity.
const (
	fieldAccount  = "spec.serviceAccountName"
	fieldIdentity = "spec.workloadIdentityName"
)

// Generic is the provider for static credentials, and for anonymous access.
const Generic = "generic"

// Fields are the identity fields of an object.
type Fields struct {
	// Namespace is the namespace of the object and of everything that the object names. Required.
	Namespace string
	// Kind and Name are the object's kind and name. They are required with a SPIFFE credential,
	// whose subject is the object.
	Kind auth.Kind
	Name string
	// Path is the path of the identity fields, such as spec.decryption. Refusals name the fields by
	// this path. Default: spec.
	Path string
	// Via is nil if the object uses its own identity. Otherwise another object uses this identity,
	// and Via is the reference from the other object to this object. Example: an image automation
	// uses the identity of the Git repository that its spec.sourceRef names. These Fields are then
	// those of the Git repository, and Via is the automation's spec.sourceRef. With Via, the fields
	// Kind and Name above are required.
	Via *Reference
	// Address is the server's address in the spec, such as spec.url. Required with a Credential.
	// The credential goes to the address's host. The address is also the default audience.
	Address string
	// Provider is spec.provider; empty means [Generic].
	Provider string
	// ProviderLater is true if the object's kind has no spec.provider. The content that the object
	// reads then names the cloud. An encrypted file, for example, names the key service that
	// decrypts it. [Resolve] returns the source [Later], and [ResolveAt] decides for each cloud.
	ProviderLater bool
	// ServiceAccountName is spec.serviceAccountName; empty if the field is absent.
	ServiceAccountName string
	// WorkloadIdentityName is spec.workloadIdentityName; empty if the field is absent.
	WorkloadIdentityName string
	// IdentityRef is spec.identityRef; nil when the field is absent.
	IdentityRef *IdentityRef
	// PullSecrets is true if the object's kind pulls images. With provider [Generic], such an
	// object can use the image pull secrets of its ServiceAccount. If PullSecrets is false, an
	// object with provider Generic and a ServiceAccount must also have STS.
	PullSecrets bool
	// STS is spec.sts; nil when the field is absent.
	STS *TokenService
	// Credential is spec.credential; nil when the field is absent.
	Credential *Credential
	// SecretRef is the name in spec.secretRef; nil when the field is absent.
	SecretRef *string
	// CertSecretRef is the name in spec.certSecretRef; nil when the field is absent.
	CertSecretRef *string
	// ProxySecretRef is the name in spec.proxySecretRef; nil when the field is absent.
	ProxySecretRef *string
	// Insecure is spec.insecure.
	Insecure bool

	decided bool // true if ResolveAt has set Provider
}

// TokenService is spec.sts: the service that exchanges the token of a ServiceAccount or
// WorkloadIdentity for a session.
type TokenService struct {
	// Provider is the service's protocol, which must be "aws". Required.
	Provider string
	// Endpoint is the service's URL. The provider decides whether a proof may be sent to this URL.
	// Required.
	Endpoint string
}

// Rules are the decisions of the controller's administrator.
type Rules struct {
	// Providers are the names of the clouds that this controller can ask for tokens.
	Providers []string
	// DefaultServiceAccount is the ServiceAccount of an object that needs an account's token but
	// names no account (--default-service-account). It is used if the provider is a cloud, or if
	// the credential has the type [ServiceAccountToken]. The account is in the object's own
	// namespace. The pull secrets of the default account are never used. Empty means no default.
	DefaultServiceAccount string
	// RequireServiceAccount refuses an object that needs an account's token but names no account,
	// if there is no default (--require-service-account-for-provider-auth). If it is true,
	// ControllerNamespaces has no effect.
	RequireServiceAccount bool
	// ControllerOnly refuses ServiceAccounts, WorkloadIdentities and AWS identities: an object uses
	// the controller's identity or no identity (--feature-gates=ObjectLevelWorkloadIdentity=false).
	ControllerOnly bool
	// TokenServer is true if the controller can use Lanyard's token server (--keyring-namespace).
	// Otherwise an object that names a WorkloadIdentity is refused.
	TokenServer bool
	// SPIFFEBroker is true if the controller can use a SPIFFE broker (--spiffe-broker-endpoint). An
	// object with a SPIFFE credential is refused if there is neither a broker nor a token server.
	SPIFFEBroker bool
	// AWSIdentities returns an [*auth.Error] if the namespace may not use an AWS identity. It
	// checks the grants of all identities in the chain of the AWS identity. The controller's own
	// identity at AWS is checked as the AWSClusterControllerIdentity named default. If the field
	// AWSIdentities is nil, the controller does not support AWS identities (--aws-identities), and
	// refuses an object that names one.
	AWSIdentities func(ctx context.Context, namespace string, identity auth.Subject) error
	// IdentitiesAtHub refuses objects that name a WorkloadIdentity, because the WorkloadIdentities
	// are in another cluster, the hub of this cluster (--identities-at-hub).
	IdentitiesAtHub bool
	// ControllerNamespaces are the namespaces that may use the controller's own identity
	// (--controller-identity-namespaces). The zero value admits nobody.
	ControllerNamespaces grant.Namespaces
	// CredentialHosts are the servers that may get the controller's own token as a credential
	// (--controller-credential-hosts). The zero value has no servers.
	CredentialHosts endpoint.Allowed
	// NamespaceLabels gets the labels of a Namespace, for a selector in ControllerNamespaces. It is
	// called only if the decision depends on the labels. If it is nil, the labels are unknown and
	// no selector matches.
	NamespaceLabels func(ctx context.Context, namespace string) (map[string]string, error)
}

// Source says where a credential comes from.
type Source string

// The sources. A source decides which fields of an [Identity] are set.
const (
	// Anonymous: there is no credential.
	Anonymous Source = "anonymous"
	// StaticSecret: the credential is in the Secret that the field SecretName names.
	StaticSecret Source = "static-secret"
	// PullSecrets: the credentials are the imagePullSecrets of the ServiceAccount that the field
	// ServiceAccountName names.
	PullSecrets Source = "pull-secrets"
	// Cloud: Provider issues a short-lived token for Subject.
	Cloud Source = "cloud"
	// STS: the service at STSEndpoint issues a short-lived session for Subject, by Provider's
	// protocol. Neither the service nor its resources belong to a cloud.
	STS Source = "sts"
	// Proof: a proof of Subject is itself the credential. Its type is in Credential.
	Proof Source = "proof"
	// Later: the clouds are not known yet. [ResolveAt] decides for each cloud whose credential the
	// object gets. If the object also needs credentials that are not for a cloud, it names a Secret
	// with them, and SecretName is set.
	Later Source = "later"
)

// Identity says whose credential an object gets, and which Secrets configure its connections. The
// Secrets and the ServiceAccount are in the object's own namespace. Their names are checked to be
// DNS subdomains. The zero Identity is not valid: its Source is empty.
type Identity struct {
	// Source is where the credential comes from.
	Source Source
	// Provider is Generic, or one of Rules.Providers; empty if Source is Later.
	Provider string
	// Subject is the subject that the token is for; zero unless Source is Cloud, STS or Proof.
	Subject auth.Subject
	// Credential is the type of the credential if Source is Proof; empty otherwise.
	Credential CredentialType
	// Audiences are the audiences of a token that is itself the credential; empty unless Source is
	// Proof.
	Audiences auth.List
	// Defaulted is true if Subject is Rules.DefaultServiceAccount, not an account that the object
	// names.
	Defaulted bool
	// STSEndpoint is the token service that the object chose. Empty means the provider's own. It is
	// always empty with the controller's identity.
	STSEndpoint string
	// ServiceAccountName is set when Source is PullSecrets.
	ServiceAccountName string
	// SecretName is set when Source is StaticSecret. When Source is Later, it is set if the object
	// names a Secret.
	SecretName string
	// CertSecretName is the Secret with certificates and keys for TLS with the object's resource,
	// such as a registry. An exchange never uses this Secret. Empty means no Secret.
	CertSecretName string
	// ProxySecretName is the Secret with the proxy for connections to the resource and to the token
	// service. Empty means no proxy. It is always empty with the controller's identity, and with an
	// identity that an administrator lends.
	ProxySecretName string
	// Insecure allows plain HTTP. It is always false if Minted returns true.
	Insecure bool
}

// Minted reports whether the credential is short-lived and issued to Subject.
func (i Identity) Minted() bool { return !i.Subject.IsZero() }

// Option returns an option of [auth.GetToken]. The option sets the subject, the chosen token
// service and the audiences. GetToken uses the argument accounts to read the subject and to prove
// it. Use Option only if Minted returns true: without a subject, GetToken fails.
func (i Identity) Option(accounts auth.Accounts) auth.Option {
	subject := auth.WithController()
	if i.Subject != auth.Controller() {
		subject = auth.WithSubject(i.Subject, accounts)
	}
	return func(o *auth.Options) {
		subject(o)
		if i.STSEndpoint != "" {
			o.STSEndpoint = i.STSEndpoint
		}
		if !i.Audiences.IsZero() {
			o.Audiences = i.Audiences
		}
	}
}

// Resolve decides whose credential the object gets. Every error contains an [*auth.Error]. An error
// about the object's fields contains a [*Refusal] too. Errors of Rules.AWSIdentities and of
// Rules.NamespaceLabels have no [*Refusal]. [Terminal] says whether to try again.
func Resolve(ctx context.Context, fields Fields, rules Rules) (Identity, error) {
	if err := fields.Via.check(fields); err != nil {
		return Identity{}, err
	}
	identity, err := resolve(ctx, fields, rules)
	if err != nil {
		return Identity{}, fields.place(err)
	}
	return identity, nil
}

// resolve is like [Resolve], but ignores Path and Via. Its errors name the fields as if they were
// in the object's own spec.
func resolve(ctx context.Context, fields Fields, rules Rules) (Identity, error) {
	later := fields.ProviderLater && !fields.decided
	if fields.Provider == "" && !fields.ProviderLater {
		fields.Provider = Generic
	}
	checked := fields
	if later {
		// Check the fields as for AWS. AWS allows every field that any other cloud allows.
		fields.Provider, checked = "", fields.at(aws)
	}
	if err := cmp.Or(
		checkProvider(checked), checkSTS(fields.STS), checkCredential(fields.Credential), checkIdentityRef(fields.IdentityRef),
	); err != nil {
		return Identity{}, err
	}
	for _, x := range exclusions() {
		if x.broken(checked) {
			return Identity{}, refuse(auth.CodeOptionInvalid, x.field, x.message, x.fix)
		}
	}
	if !auth.IsLabel(fields.Namespace) {
		return Identity{}, refuse(auth.CodeSubjectInvalid, "metadata.namespace",
			fmt.Sprintf("Invalid value: %.80q", fields.Namespace), "create the object in a namespace")
	}
	account, err := fields.subject(fieldAccount, fields.ServiceAccountName, auth.KindServiceAccount, auth.ServiceAccount)
	if err != nil {
		return Identity{}, err
	}
	named, err := fields.subject(fieldIdentity, fields.WorkloadIdentityName, auth.KindWorkloadIdentity, auth.WorkloadIdentity)
	if err != nil {
		return Identity{}, err
	}
	identity := Identity{Provider: fields.Provider, Insecure: fields.Insecure}
	for _, ref := range []struct {
		field string
		name  *string
		into  *string
	}{
		{"spec.secretRef", fields.SecretRef, &identity.SecretName},
		{"spec.certSecretRef", fields.CertSecretRef, &identity.CertSecretName},
		{"spec.proxySecretRef", fields.ProxySecretRef, &identity.ProxySecretName},
	} {
		if ref.name == nil {
			continue
		}
		if err := checkSecretName(ref.field, *ref.name); err != nil {
			return Identity{}, err
		}
		*ref.into = *ref.name
	}
	switch {
	case later:
		identity.Source = Later
		if account.IsZero() && named.IsZero() && fields.IdentityRef == nil {
			return identity, nil // no identity is named, and none is needed before a cloud is known
		}
		_, _, err := whose(ctx, fields, rules, account, named)
		return identity, err
	case fields.Provider != Generic:
		identity.Source = Cloud
	case fields.Credential != nil:
		identity.Source, identity.Credential = Proof, fields.Credential.Type
	case fields.STS != nil:
		identity.Source, identity.Provider = STS, fields.STS.Provider
	case fields.SecretRef != nil:
		identity.Source = StaticSecret
	case !account.IsZero():
		identity.Source, identity.ServiceAccountName = PullSecrets, account.Name()
	default:
		identity.Source = Anonymous
	}
	switch identity.Source {
	case Cloud, STS:
		err = checkSupported(identity.Provider, fields, rules)
		if fields.STS != nil {
			identity.STSEndpoint = fields.STS.Endpoint
		}
	case Proof:
		identity.Audiences, err = audiencesOf(fields)
	default:
		return identity, nil
	}
	if err != nil {
		return Identity{}, err
	}
	identity.Subject, identity.Defaulted, err = whose(ctx, fields, rules, account, named)
	return identity, err
}

// whose returns the subject to which a short-lived credential is issued. The last two arguments are
// the ServiceAccount and the WorkloadIdentity that the object names; either may be zero.
func whose(
	ctx context.Context, fields Fields, rules Rules, account, named auth.Subject,
) (subject auth.Subject, defaulted bool, err error) {
	switch {
	case fields.credentialType().SPIFFE():
		subject, err = objectOf(fields, rules)
	case !named.IsZero():
		subject, err = named, checkIssuer(fields, rules)
	case fields.IdentityRef != nil:
		subject, err = awsIdentityOf(ctx, fields, rules)
	default:
		return subjectOf(ctx, fields, rules, account)
	}
	return subject, false, err
}

// Named returns the subject that an object depends on. When this subject changes, the object must
// be reconciled again. Named returns the zero subject in two cases:
//
//   - The object depends on no subject.
//   - The subject's name or the field Via is invalid.
//
// With a SPIFFE credential, the subject is the object itself. It then also counts as changed in
// other cases, for example when Lanyard's token server issues its SVIDs under a new issuer.
func (r Rules) Named(fields Fields) auth.Subject {
	if fields.Via.check(fields) != nil {
		return auth.Subject{}
	}
	cloud := fields.ProviderLater || fields.Provider != Generic && fields.Provider != ""
	name := fields.ServiceAccountName
	var subject auth.Subject // zero after an error
	switch {
	case fields.credentialType().SPIFFE():
		subject, _ = auth.Object(fields.Kind, fields.Namespace, fields.Name)
		return subject
	case fields.WorkloadIdentityName != "":
		subject, _ = auth.WorkloadIdentity(fields.Namespace, fields.WorkloadIdentityName)
		return subject
	case fields.IdentityRef != nil:
		subject, _ = AWSIdentity(fields.IdentityRef.Kind, fields.Namespace, fields.IdentityRef.Name)
		return subject
	case name == "" && (cloud || fields.credentialType() == ServiceAccountToken):
		name = r.DefaultServiceAccount
	}
	switch {
	case name != "":
		subject, _ = auth.ServiceAccount(fields.Namespace, name)
	case (fields.Provider == aws || fields.ProviderLater) && r.AWSIdentities != nil:
		subject, _ = auth.ClusterIdentity(auth.KindAWSClusterControllerIdentity, awsControllerIdentity)
	}
	return subject
}

// subject returns the subject that a field of the object names. It makes the subject with the given
// function. If the field is absent, it returns the zero subject.
func (f Fields) subject(
	field, name string, kind auth.Kind, of func(namespace, name string) (auth.Subject, error),
) (auth.Subject, error) {
	if name == "" {
		return auth.Subject{}, nil
	}
	subject, err := of(f.Namespace, name)
	if err != nil {
		return auth.Subject{}, refuse(auth.CodeSubjectInvalid, field,
			fmt.Sprintf("%s must be a lower-case DNS-1123 subdomain, not %.80q", strings.TrimPrefix(field, pathSpec+"."), name),
			fmt.Sprintf("name a %s of the object's own namespace", kind))
	}
	return subject, nil
}

// checkSupported refuses a provider that this build of the controller does not have.
func checkSupported(provider string, fields Fields, rules Rules) error {
	if slices.Contains(rules.Providers, provider) {
		return nil
	}
	supported := rules.Providers
	if !fields.ProviderLater {
		supported = append([]string{Generic}, supported...)
	}
	return refuse(auth.CodeOptionUnsupported, fields.providerField(),
		fmt.Sprintf("provider %q is not supported by this build of the controller", provider),
		"use one of "+strings.Join(supported, ", "))
}

// checkIssuer refuses WorkloadIdentities if the controller cannot get their tokens.
func checkIssuer(fields Fields, rules Rules) error {
	atHub := "have an operator write a WorkloadIdentityBinding, and name its Secret in spec.secretRef; or name a serviceAccountName"
	if fields.ProviderLater {
		atHub = "name a serviceAccountName"
	}
	switch {
	case rules.ControllerOnly:
		return refuse(auth.CodeNotGranted, fieldIdentity,
			"the feature gate ObjectLevelWorkloadIdentity is off, so no object can name a WorkloadIdentity",
			"have the administrator set --feature-gates=ObjectLevelWorkloadIdentity=true (featureGates of the Helm chart)")
	case rules.IdentitiesAtHub:
		return refuse(auth.CodeNotGranted, fieldIdentity,
			"the WorkloadIdentities are at the cluster's hub, which cannot see that an object of this cluster uses one of them",
			atHub)
	case !rules.TokenServer:
		return refuse(auth.CodeNotGranted, fieldIdentity,
			"the controller runs without --keyring-namespace, so it cannot have tokens of WorkloadIdentities",
			"have the administrator set issuer.url of the Helm chart, or name a serviceAccountName instead")
	}
	return nil
}

// subjectOf returns the subject to which a short-lived credential is issued:
//
//   - the account that the object names
//   - or else the default account, in the object's own namespace
//   - or else the controller
//
// Only this function replaces an absent serviceAccountName by another identity. The controller's
// identity needs a grant that admits the namespace. It is never used over a connection that the
// tenant chose.
func subjectOf(
	ctx context.Context, fields Fields, rules Rules, account auth.Subject,
) (subject auth.Subject, defaulted bool, err error) {
	if account.IsZero() && rules.DefaultServiceAccount != "" {
		if account, err = auth.ServiceAccount(fields.Namespace, rules.DefaultServiceAccount); err != nil {
			return auth.Subject{}, false, refuse(auth.CodeSubjectInvalid, fieldAccount,
				"no ServiceAccount is named, and the value of --default-service-account cannot be a ServiceAccount's name",
				"set spec.serviceAccountName, or have the administrator correct --default-service-account "+
					"(identity.defaultServiceAccount of the Helm chart)")
		}
		defaulted = true
	}
	switch {
	case !account.IsZero() && rules.ControllerOnly:
		return auth.Subject{}, false, refuse(auth.CodeNotGranted, fieldAccount,
			"the feature gate ObjectLevelWorkloadIdentity is off, so no object can name a ServiceAccount",
			"have the administrator set --feature-gates=ObjectLevelWorkloadIdentity=true (featureGates of the Helm chart)")
	case !account.IsZero():
		return account, defaulted, nil
	case rules.RequireServiceAccount:
		return auth.Subject{}, false, refuse(auth.CodeNotGranted, fieldAccount,
			"no ServiceAccount is named, but --require-service-account-for-provider-auth requires one",
			"set spec.serviceAccountName, or have the administrator set --default-service-account "+
				"(identity.defaultServiceAccount of the Helm chart)")
	}
	if err := checkLent(ctx, fields.Namespace, rules); err != nil {
		return auth.Subject{}, false, err
	}
	if err := checkLentAtAWS(ctx, fields, rules); err != nil {
		return auth.Subject{}, false, err
	}
	if err := cmp.Or(refuseChosenConnection(fields), checkCredentialHost(fields, rules)); err != nil {
		return auth.Subject{}, false, err
	}
	return auth.Controller(), false, nil
}

// refuseChosenConnection refuses the controller's identity if the object chooses the receiver of
// the proof, or a part of the connection to the receiver.
func refuseChosenConnection(fields Fields) error {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"spec.certSecretRef", fields.CertSecretRef != nil},
		{"spec.proxySecretRef", fields.ProxySecretRef != nil},
		{"spec.sts", fields.STS != nil},
	} {
		if field.set {
			return refuse(auth.CodeOptionInvalid, field.name, "the controller's identity is not used over a connection that the object chooses",
				"set spec.serviceAccountName, or remove "+field.name)
		}
	}
	return nil
}

// checkLent returns an error if the controller's identity is not lent to the namespace.
func checkLent(ctx context.Context, namespace string, rules Rules) error {
	decision := rules.ControllerNamespaces.Decide(namespace, nil)
	selected := rules.ControllerNamespaces.Selector != nil
	if !decision.Allowed && selected && rules.NamespaceLabels != nil {
		labels, err := rules.NamespaceLabels(ctx, namespace)
		if err != nil {
			return &auth.Error{
				Stage: auth.StageSubject, Code: auth.CodeUnavailable,
				Fix: "let the controller read Namespaces (get): --controller-identity-namespaces selects by their labels",
				Err: fmt.Errorf("labels of namespace %s: %w", namespace, err),
			}
		}
		decision = rules.ControllerNamespaces.Decide(namespace, labels)
	}
	if decision.Allowed {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeNotGranted,
		Fix: "set spec.serviceAccountName, or have the administrator admit the namespace with --controller-identity-namespaces " +
			"(identity.controllerNamespaces of the Helm chart)",
		Err: &Refusal{
			Field: fieldAccount,
			Message: fmt.Sprintf("no ServiceAccount is named, and the controller's identity is not lent to namespace %s: %s",
				namespace, decision.Link),
			passing: selected,
		},
	}
}

// Refusal says which field of an object is refused and why. It is the cause of an [*auth.Error],
// which has the fix.
//
//nolint:errname // named for what it is; the error that callers get is [*auth.Error].
type Refusal struct {
	// Field is the path of the field, such as spec.secretRef.
	Field string
	// Message says what is wrong with the field. It has no full stop at its end.
	Message string

	passing bool // a change of the namespace's labels may end the refusal
}

// Error returns "<field>: <message>".
func (r *Refusal) Error() string { return r.Field + ": " + r.Message }

func refuse(code auth.Code, field, message, fix string) error {
	return &auth.Error{Stage: auth.StageSubject, Code: code, Fix: fix, Err: &Refusal{Field: field, Message: message}}
}

// Terminal reports whether an error of [Resolve] or [auth.GetToken] stalls the object. A retry then
// cannot succeed until somebody changes the object, its subject or the controller's flags. If the
// cause can end without notice to the controller, the error is not terminal. An example is a
// refusal by a cloud: somebody may correct the trust policy there.
func Terminal(err error) bool {
	if refused, ok := errors.AsType[*Refusal](err); ok && refused.passing {
		return false
	}
	if _, resolved := errors.AsType[*endpoint.AddressError](err); resolved {
		return false // a retry may succeed: the host name may soon resolve to another address
	}
	return slices.Contains([]auth.Code{
		auth.CodeSubjectInvalid, auth.CodeSubjectNotFound, auth.CodeIdentityMissing, auth.CodeIdentityInvalid,
		auth.CodeNotGranted, auth.CodeOptionUnsupported, auth.CodeOptionInvalid, auth.CodeEndpointRefused,
		auth.CodeRegionMissing, auth.CodeAudienceRefused,
	}, auth.CodeOf(err))
}
