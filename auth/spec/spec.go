package spec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/grant"
)

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
	// SecretRef is the name in spec.secretRef; nil when the field is absent.
	SecretRef *string
	// CertSecretRef is the name in spec.certSecretRef; nil when the field is absent.
	CertSecretRef *string
	// ProxySecretRef is the name in spec.proxySecretRef; nil when the field is absent.
	ProxySecretRef *string
	// Insecure is spec.insecure.
	Insecure bool
}

// Rules are what the administrator of this controller decided.
type Rules struct {
	// Providers are the names of the clouds that this controller can ask for tokens.
	Providers []string
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
)

// Identity is whose credential an object gets, and what may be used on the way. All names are checked DNS subdomains and
// mean objects in the object's own namespace. The zero Identity is no answer: its Source is empty.
type Identity struct {
	// Source is where the credential comes from.
	Source Source
	// Provider is Generic, or one of Rules.Providers.
	Provider string
	// Subject is whom the token is for; zero unless Source is Cloud.
	Subject auth.Subject
	// ServiceAccountName is set when Source is PullSecrets.
	ServiceAccountName string
	// SecretName is set when Source is StaticSecret.
	SecretName string
	// CertSecretName is the Secret with TLS material for the resource that the object names, such as a registry. It is never
	// used for an exchange. Empty for none.
	CertSecretName string
	// ProxySecretName is the Secret with the proxy for the resource. For an exchange too, which is the tenant's own: it is
	// always empty with the controller's identity. Empty for none.
	ProxySecretName string
	// Insecure allows plain HTTP. It is never set when Source is Cloud.
	Insecure bool
}

// Minted reports whether the credential is a short-lived one that is issued to Subject.
func (i Identity) Minted() bool { return !i.Subject.IsZero() }

// Option is the subject as an option of [auth.GetToken]; accounts know and prove it. It is for identities from a cloud: with
// any other, GetToken refuses the zero subject.
func (i Identity) Option(accounts auth.Accounts) auth.Option {
	if i.Subject.Kind() == auth.KindController {
		return auth.WithController()
	}
	return auth.WithSubject(i.Subject, accounts, accounts)
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
		if identity.Subject, err = cloudSubject(ctx, fields, rules, account); err != nil {
			return Identity{}, err
		}
	case fields.SecretRef != nil:
		identity.Source = StaticSecret
	case !account.IsZero():
		identity.Source, identity.ServiceAccountName = PullSecrets, account.Name()
	default:
		identity.Source = Anonymous
	}
	return identity, nil
}

// accountOf is the ServiceAccount that the object names, or the zero subject.
func accountOf(fields Fields) (auth.Subject, error) {
	if !isLabel(fields.Namespace) {
		return auth.Subject{}, refuse(auth.CodeSubjectInvalid, "metadata.namespace",
			fmt.Sprintf("Invalid value: %q", clip(fields.Namespace)), "create the object in a namespace")
	}
	if fields.ServiceAccountName == "" {
		return auth.Subject{}, nil
	}
	account, err := auth.ServiceAccount(fields.Namespace, fields.ServiceAccountName)
	if err != nil {
		return auth.Subject{}, refuse(auth.CodeSubjectInvalid, "spec.serviceAccountName",
			fmt.Sprintf("serviceAccountName must be a lower-case DNS-1123 subdomain, not %q", clip(fields.ServiceAccountName)),
			"name a ServiceAccount of the object's own namespace")
	}
	return account, nil
}

// cloudSubject is whom a cloud's token is for. Here, and nowhere else, an absent serviceAccountName becomes the controller:
// only where a grant admits the namespace, and on no way that the tenant chose.
func cloudSubject(ctx context.Context, fields Fields, rules Rules, account auth.Subject) (auth.Subject, error) {
	if !slices.Contains(rules.Providers, fields.Provider) {
		supported := append([]string{Generic}, rules.Providers...)
		return auth.Subject{}, refuse(auth.CodeOptionUnsupported, "spec.provider",
			fmt.Sprintf("provider %q is not supported by this build of the controller", fields.Provider),
			"use one that is: "+strings.Join(supported, ", "))
	}
	if !account.IsZero() {
		return account, nil
	}
	if err := lent(ctx, fields.Namespace, rules); err != nil {
		return auth.Subject{}, err
	}
	chosen := func(field string) error {
		return refuse(auth.CodeOptionInvalid, field, "the controller's identity is not used over a connection that the object chooses",
			"set spec.serviceAccountName, or remove "+field)
	}
	switch {
	case fields.CertSecretRef != nil:
		return auth.Subject{}, chosen("spec.certSecretRef")
	case fields.ProxySecretRef != nil:
		return auth.Subject{}, chosen("spec.proxySecretRef")
	default:
		return auth.Controller(), nil
	}
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
			Field: "spec.serviceAccountName",
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
// because nobody tells us when a trust policy is mended; nor is anything else that ends without our hearing of it.
func Terminal(err error) bool {
	var refused *Refusal
	if errors.As(err, &refused) && refused.passing {
		return false
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
