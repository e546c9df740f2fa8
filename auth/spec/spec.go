package spec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
)

// fieldAccount is the field that names a ServiceAccount.
const fieldAccount = "spec.serviceAccountName"

// Generic is the provider of static credentials, and of none.
const Generic = "generic"

// Fields are the identity fields of an object.
type Fields struct {
	// Namespace is the object's, and with it the namespace of everything that it names. Required.
	Namespace string
	// Provider is spec.provider; empty means [Generic].
	Provider string
	// ServiceAccountName is spec.serviceAccountName; empty when none is named.
	ServiceAccountName string
	// PullSecrets says that the kind names images: with [Generic], the image pull secrets of ServiceAccountName are used. Without
	// it, an account has no meaning with Generic unless STS is set.
	PullSecrets bool
	// STS is spec.sts; nil when the field is absent.
	STS *TokenService
	// SecretRef is the name in spec.secretRef; nil when the field is absent.
	SecretRef *string
	// CertSecretRef is the name in spec.certSecretRef; nil when the field is absent.
	CertSecretRef *string
	// ProxySecretRef is the name in spec.proxySecretRef; nil when the field is absent.
	ProxySecretRef *string
	// Insecure is spec.insecure.
	Insecure bool
}

// TokenService is spec.sts: where a ServiceAccount's token is exchanged for a session.
type TokenService struct {
	// Provider is the protocol, AWS ("aws") being the only one. Required.
	Provider string
	// Endpoint is the service's URL. Whether a proof may be sent there is for the provider to judge. Required.
	Endpoint string
}

// Rules are what the administrator of this controller decided.
type Rules struct {
	// Providers are the names of the clouds that this controller can ask for tokens.
	Providers []string
	// DefaultServiceAccount is the account, in the object's own namespace, of objects with a cloud's provider that name none
	// (--default-service-account). Empty for none. It never stands for an account whose pull secrets are used.
	DefaultServiceAccount string
	// RequireServiceAccount refuses objects with a cloud's provider that have no account, neither named nor by default, whatever
	// ControllerNamespaces says (--require-service-account-for-provider-auth).
	RequireServiceAccount bool
	// ControllerOnly refuses accounts: objects have the controller's identity or none
	// (--feature-gates=ObjectLevelWorkloadIdentity=false).
	ControllerOnly bool
	// ControllerNamespaces are the namespaces that the controller's own identity is lent to
	// (--controller-identity-namespaces). Its zero value is nobody.
	ControllerNamespaces grant.Namespaces
	// NamespaceLabels gets the labels of a Namespace, for a selector in ControllerNamespaces. It is called only when they
	// decide. Nil: they are not known, and no selector matches.
	NamespaceLabels func(ctx context.Context, namespace string) (map[string]string, error)
}

// Source is where a credential comes from.
type Source string

// The sources. Each says which fields of an [Identity] are set.
const (
	// Anonymous: there is no credential.
	Anonymous Source = "anonymous"
	// StaticSecret: the Secret SecretName.
	StaticSecret Source = "static-secret"
	// PullSecrets: the imagePullSecrets of the ServiceAccount ServiceAccountName.
	PullSecrets Source = "pull-secrets"
	// Cloud: a short-lived token for Subject from Provider.
	Cloud Source = "cloud"
	// STS: a short-lived session for Subject from the service at STSEndpoint, which speaks Provider's protocol and is of no
	// cloud. What it opens is no cloud's either.
	STS Source = "sts"
)

// Identity is whose credential an object gets, and what may be used on the way. All names are checked DNS subdomains and
// mean objects in the object's own namespace. The zero Identity is no answer: its Source is empty.
type Identity struct {
	// Source is where the credential comes from.
	Source Source
	// Provider is Generic, or one of Rules.Providers.
	Provider string
	// Subject is the subject that the token is for; zero unless Source is Cloud or STS.
	Subject auth.Subject
	// Defaulted says that the object does not name Subject: Rules.DefaultServiceAccount does.
	Defaulted bool
	// STSEndpoint is the token service that the object chose; empty for the provider's own. Never with the controller's identity.
	STSEndpoint string
	// ServiceAccountName is set when Source is PullSecrets.
	ServiceAccountName string
	// SecretName is set when Source is StaticSecret.
	SecretName string
	// CertSecretName is the Secret with TLS material for the resource that the object names, such as a registry. It is never
	// used for an exchange. Empty for none.
	CertSecretName string
	// ProxySecretName is the Secret with the proxy for the resource and for the tenant's own exchange. It is always empty with
	// the controller's identity. Empty for none.
	ProxySecretName string
	// Insecure allows plain HTTP. It is never set with a credential that is minted.
	Insecure bool
}

// Minted reports whether the credential is a short-lived one that is issued to Subject.
func (i Identity) Minted() bool { return !i.Subject.IsZero() }

// Option is the subject, and the token service that the object chose, as an option of [auth.GetToken]; accounts know and prove
// the subject. It is for credentials that are minted: with any other, GetToken refuses the zero subject.
func (i Identity) Option(accounts auth.Accounts) auth.Option {
	if i.Subject.Kind() == auth.KindController {
		return auth.WithController()
	}
	subject, endpoint := auth.WithSubject(i.Subject, accounts, accounts), auth.WithSTSEndpoint(i.STSEndpoint)
	return func(o *auth.Options) {
		subject(o)
		if i.STSEndpoint != "" {
			endpoint(o)
		}
	}
}

// Resolve says whose credential the object gets. The error is an [*auth.Error] with a [*Refusal] in its chain, or, when the
// labels of the namespace cannot be read, a temporary one. [Terminal] tells whether to try again.
func Resolve(ctx context.Context, fields Fields, rules Rules) (Identity, error) {
	if fields.Provider == "" {
		fields.Provider = Generic
	}
	if err := known(fields.Provider); err != nil {
		return Identity{}, err
	}
	if err := knownSTS(fields.STS); err != nil {
		return Identity{}, err
	}
	for _, x := range exclusions() {
		if x.broken(fields) {
			return Identity{}, refuse(auth.CodeOptionInvalid, x.field, x.message, x.fix)
		}
	}
	account, err := accountOf(fields)
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
		if err := secretName(ref.field, *ref.name); err != nil {
			return Identity{}, err
		}
		*ref.into = *ref.name
	}
	switch {
	case fields.Provider != Generic:
		identity.Source = Cloud
	case fields.STS != nil:
		identity.Source, identity.Provider = STS, fields.STS.Provider
	case fields.SecretRef != nil:
		identity.Source = StaticSecret
	case !account.IsZero():
		identity.Source, identity.ServiceAccountName = PullSecrets, account.Name()
	default:
		identity.Source = Anonymous
	}
	if identity.Source != Cloud && identity.Source != STS {
		return identity, nil
	}
	if fields.STS != nil {
		identity.STSEndpoint = fields.STS.Endpoint
	}
	identity.Subject, identity.Defaulted, err = subjectOf(ctx, identity.Provider, fields, rules, account)
	if err != nil {
		return Identity{}, err
	}
	return identity, nil
}

// AccountName is the ServiceAccount, in the object's own namespace, that an object depends on: the object must be reconciled
// again when it changes. Empty for none.
func (r Rules) AccountName(fields Fields) string {
	if fields.ServiceAccountName == "" && fields.Provider != Generic && fields.Provider != "" {
		return r.DefaultServiceAccount
	}
	return fields.ServiceAccountName
}

// accountOf is the ServiceAccount that the object names, or the zero subject.
func accountOf(fields Fields) (auth.Subject, error) {
	if !auth.IsLabel(fields.Namespace) {
		return auth.Subject{}, refuse(auth.CodeSubjectInvalid, "metadata.namespace",
			fmt.Sprintf("Invalid value: %.80q", fields.Namespace), "create the object in a namespace")
	}
	if fields.ServiceAccountName == "" {
		return auth.Subject{}, nil
	}
	account, err := auth.ServiceAccount(fields.Namespace, fields.ServiceAccountName)
	if err != nil {
		return auth.Subject{}, refuse(auth.CodeSubjectInvalid, fieldAccount,
			fmt.Sprintf("serviceAccountName must be a lower-case DNS-1123 subdomain, not %.80q", fields.ServiceAccountName),
			"name a ServiceAccount of the object's own namespace")
	}
	return account, nil
}

// subjectOf is the subject of a minted credential: the account that the object names, else the default one, else the controller.
// Here, and nowhere else, an absent serviceAccountName becomes another identity: an account of the object's own namespace, or
// the controller's, which is lent only where a grant admits the namespace, and on no way that the tenant chose.
func subjectOf(
	ctx context.Context, provider string, fields Fields, rules Rules, account auth.Subject,
) (subject auth.Subject, defaulted bool, err error) {
	if !slices.Contains(rules.Providers, provider) {
		supported := append([]string{Generic}, rules.Providers...)
		return auth.Subject{}, false, refuse(auth.CodeOptionUnsupported, "spec.provider",
			fmt.Sprintf("provider %q is not supported by this build of the controller", provider),
			"use one that is: "+strings.Join(supported, ", "))
	}
	if account.IsZero() && rules.DefaultServiceAccount != "" {
		if account, err = auth.ServiceAccount(fields.Namespace, rules.DefaultServiceAccount); err != nil {
			return auth.Subject{}, false, refuse(auth.CodeSubjectInvalid, fieldAccount,
				"no ServiceAccount is named, and --default-service-account is no name of one",
				"set spec.serviceAccountName, or have the administrator correct --default-service-account")
		}
		defaulted = true
	}
	switch {
	case !account.IsZero() && rules.ControllerOnly:
		return auth.Subject{}, false, refuse(auth.CodeNotGranted, fieldAccount,
			"the feature gate ObjectLevelWorkloadIdentity is off: no object has an identity of its own",
			"have the administrator set --feature-gates=ObjectLevelWorkloadIdentity=true")
	case !account.IsZero():
		return account, defaulted, nil
	case rules.RequireServiceAccount:
		return auth.Subject{}, false, refuse(auth.CodeNotGranted, fieldAccount,
			"no ServiceAccount is named, which --require-service-account-for-provider-auth demands",
			"set spec.serviceAccountName, or have the administrator set --default-service-account")
	}
	if err := lent(ctx, fields.Namespace, rules); err != nil {
		return auth.Subject{}, false, err
	}
	if err := chosenWay(fields); err != nil {
		return auth.Subject{}, false, err
	}
	return auth.Controller(), false, nil
}

// chosenWay refuses the controller's identity where the object chooses who receives its proof or carries it.
func chosenWay(fields Fields) error {
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

// lent refuses namespaces that the controller's identity is not lent to.
func lent(ctx context.Context, namespace string, rules Rules) error {
	decision := rules.ControllerNamespaces.Decide(namespace, nil)
	selected := rules.ControllerNamespaces.Selector != nil
	if !decision.Allowed && selected && rules.NamespaceLabels != nil {
		labels, err := rules.NamespaceLabels(ctx, namespace)
		if err != nil {
			return &auth.Error{
				Stage: auth.StageSubject, Code: auth.CodeUnavailable,
				Fix: "let the controller read Namespaces (get), whose labels --controller-identity-namespaces selects by",
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
		Fix: "set spec.serviceAccountName, or have the administrator admit the namespace with --controller-identity-namespaces",
		Err: &Refusal{
			Field: fieldAccount,
			Message: fmt.Sprintf("no ServiceAccount is named, and the controller's identity is not lent to namespace %s: %s",
				namespace, decision.Link),
			passing: selected,
		},
	}
}

// Refusal says which field of an object is refused and why. It is the cause in an [*auth.Error], which has the fix.
//
//nolint:errname // named for what it is; the error that callers get is [*auth.Error].
type Refusal struct {
	// Field is the path of the field, such as spec.secretRef.
	Field string
	// Message says what is wrong with it, without a full stop at its end.
	Message string

	passing bool // what it depends on is neither in the object nor in the controller's flags
}

// Error is the field and the message.
func (r *Refusal) Error() string { return r.Field + ": " + r.Message }

func refuse(code auth.Code, field, message, fix string) error {
	return &auth.Error{Stage: auth.StageSubject, Code: code, Fix: fix, Err: &Refusal{Field: field, Message: message}}
}

// Terminal reports whether trying again is useless until somebody changes the object, its ServiceAccount or the controller's
// flags: the object is stalled. It judges errors of [Resolve] and of [auth.GetToken]. What a cloud refuses is not terminal,
// because we are not told when a trust policy is corrected; nor is anything else that can change without our being told.
func Terminal(err error) bool {
	if refused, ok := errors.AsType[*Refusal](err); ok && refused.passing {
		return false
	}
	if _, resolved := errors.AsType[*endpoint.AddressError](err); resolved {
		return false // the name may soon resolve to another address
	}
	switch auth.CodeOf(err) {
	case auth.CodeSubjectInvalid, auth.CodeSubjectNotFound, auth.CodeIdentityMissing, auth.CodeIdentityInvalid,
		auth.CodeNotGranted, auth.CodeOptionUnsupported, auth.CodeOptionInvalid, auth.CodeEndpointRefused,
		auth.CodeRegionMissing, auth.CodeAudienceRefused:
		return true
	default:
		return false
	}
}
