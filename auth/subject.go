package auth

import (
	"fmt"
	"strings"
)

// Kind is the kind of a [Subject], such as ServiceAccount.
type Kind string

const (
	// KindServiceAccount is a Kubernetes ServiceAccount.
	KindServiceAccount Kind = "ServiceAccount"
	// KindWorkloadIdentity is a WorkloadIdentity of Lanyard's own issuer.
	KindWorkloadIdentity Kind = "WorkloadIdentity"
	// KindController is the calling program, with the identity that its environment configures.
	KindController Kind = "Controller"

	// KindOCIRepository is an OCIRepository that has SVIDs of its own.
	KindOCIRepository Kind = "OCIRepository"
	// KindImageRepository is an ImageRepository that has SVIDs of its own.
	KindImageRepository Kind = "ImageRepository"
	// KindAWSServiceAccountIdentity is an AWS identity of a namespace.
	KindAWSServiceAccountIdentity Kind = "AWSServiceAccountIdentity"
	// KindAWSClusterControllerIdentity is a cluster-scoped object that lends the AWS identity of
	// Lanyard's own programs.
	KindAWSClusterControllerIdentity Kind = "AWSClusterControllerIdentity"
	// KindAWSClusterStaticIdentity is a cluster-scoped AWS identity with static keys.
	KindAWSClusterStaticIdentity Kind = "AWSClusterStaticIdentity"
	// KindAWSClusterRoleIdentity is a cluster-scoped AWS identity with a role.
	KindAWSClusterRoleIdentity Kind = "AWSClusterRoleIdentity"
)

// Subject identifies who a credential is issued to. It is comparable. Only the constructors make a
// Subject, and they check it. The zero Subject is nobody, and [GetToken] refuses it.
type Subject struct {
	kind      Kind
	namespace string // empty: no tenant owns the subject
	name      string
}

// Controller returns the calling program as a subject. An empty name or a missing option never
// means the controller.
func Controller() Subject { return Subject{kind: KindController} }

// ServiceAccount returns the ServiceAccount of that name as a subject. As in Kubernetes, the
// namespace is an RFC 1123 label of at most 63 bytes. The name is an RFC 1123 subdomain of at most
// 253 bytes. Both are required. The error is an [*Error] with [CodeSubjectInvalid].
func ServiceAccount(namespace, name string) (Subject, error) {
	return namespaced(KindServiceAccount, namespace, name)
}

// WorkloadIdentity returns the WorkloadIdentity object of that name as a subject. The names follow
// the rules of [ServiceAccount].
func WorkloadIdentity(namespace, name string) (Subject, error) {
	return namespaced(KindWorkloadIdentity, namespace, name)
}

// Object returns an object with an identity of its own, such as an OCIRepository, as a subject. The
// kind is written as in the object's API. The names follow the rules of [ServiceAccount].
func Object(kind Kind, namespace, name string) (Subject, error) {
	if err := checkObjectKind(kind); err != nil {
		return Subject{}, err
	}
	return namespaced(kind, namespace, name)
}

// ClusterIdentity returns a cluster-scoped object as a subject. An administrator lends the object's
// identity to tenants. The kind is written as in the object's API. The name must be an RFC 1123
// subdomain of at most 253 bytes.
func ClusterIdentity(kind Kind, name string) (Subject, error) {
	if err := checkObjectKind(kind); err != nil {
		return Subject{}, err
	}
	if !IsSubdomain(name) {
		return Subject{}, &Error{
			Stage: StageSubject, Code: CodeSubjectInvalid,
			Fix: fmt.Sprintf("set the name of a %s (a lower-case DNS subdomain of at most 253 characters)", kind),
			Err: fmt.Errorf("%s name %.80q is not a DNS subdomain", kind, name),
		}
	}
	return Subject{kind: kind, name: name}, nil
}

// checkObjectKind refuses the kinds that have a constructor of their own, and a name that cannot be
// a kind.
func checkObjectKind(kind Kind) error {
	switch {
	case kind == KindServiceAccount, kind == KindWorkloadIdentity, kind == KindController:
	case kind != "" && !strings.ContainsFunc(string(kind), notAlphanumeric):
		return nil
	}
	return &Error{
		Stage: StageSubject, Code: CodeSubjectInvalid,
		Fix: "name the object's kind as its API writes it, or use the constructor of that kind",
		Err: fmt.Errorf("%.80q is not the kind of an object that can be a subject", string(kind)),
	}
}

func notAlphanumeric(r rune) bool {
	return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
}

func namespaced(kind Kind, namespace, name string) (Subject, error) {
	if !IsLabel(namespace) {
		return Subject{}, &Error{
			Stage: StageSubject, Code: CodeSubjectInvalid,
			Fix: fmt.Sprintf("name the namespace of the %s (a lower-case DNS label of at most 63 characters)", kind),
			Err: fmt.Errorf("namespace %.80q of %s %.80q is not a DNS label", namespace, kind, name),
		}
	}
	if !IsSubdomain(name) {
		return Subject{}, &Error{
			Stage: StageSubject, Code: CodeSubjectInvalid,
			Fix: fmt.Sprintf("set the name of a %s in namespace %s (a lower-case DNS subdomain of at most 253 characters)", kind, namespace),
			Err: fmt.Errorf("%s name %.80q is not a DNS subdomain", kind, name),
		}
	}
	return Subject{kind: kind, namespace: namespace, name: name}, nil
}

// Kind returns the subject's kind; empty for the zero Subject.
func (s Subject) Kind() Kind { return s.kind }

// Namespace returns the subject's namespace, which is its tenant. It is empty for a subject that
// belongs to no tenant (see [Subject.Lent]).
func (s Subject) Namespace() string { return s.namespace }

// Lent reports whether the subject is the controller or a cluster identity. Such a subject belongs
// to no tenant, and is only lent to tenants. It is never used with an endpoint, proxy or
// certificate authority that a tenant chose.
func (s Subject) Lent() bool { return s.kind != "" && s.namespace == "" }

// Name returns the object's name; empty for the controller.
func (s Subject) Name() string { return s.name }

// IsZero reports whether s is the zero Subject.
func (s Subject) IsZero() bool { return s == Subject{} }

// String returns the subject's name at relying parties:
//
//   - system:serviceaccount:<namespace>:<name> for a ServiceAccount, as in the sub claim of its
//     tokens
//   - controller for the controller
//   - lanyard.dev:<kind>:<namespace>:<name> for a WorkloadIdentity or another object
//   - lanyard.dev:<kind>:<name> for a cluster identity
//
// The kind is in lower case.
func (s Subject) String() string {
	switch {
	case s.kind == KindController:
		return controllerText
	case s.kind == "":
		return "nobody"
	case s.Lent():
		return s.kind.prefix() + s.name
	default:
		return s.kind.prefix() + s.namespace + ":" + s.name
	}
}

// ParseSubject is the inverse of [Subject.String]. It parses, for example, the subject in an
// object's status or the sub claim of a ServiceAccount's token. The text has the kind in lower
// case, such as ocirepository. This does not tell which letters of the kind are capitals, as in
// OCIRepository. So ParseSubject knows only the kinds that are constants of this package. For any
// other text, ParseSubject returns an [*Error] with [CodeSubjectInvalid].
func ParseSubject(text string) (Subject, error) {
	if text == controllerText {
		return Controller(), nil
	}
	for _, kind := range []Kind{
		KindServiceAccount, KindWorkloadIdentity, KindOCIRepository, KindImageRepository, KindAWSServiceAccountIdentity,
	} {
		if names, ok := strings.CutPrefix(text, kind.prefix()); ok {
			namespace, name, _ := strings.Cut(names, ":")
			return namespaced(kind, namespace, name)
		}
	}
	for _, kind := range []Kind{KindAWSClusterControllerIdentity, KindAWSClusterStaticIdentity, KindAWSClusterRoleIdentity} {
		if name, ok := strings.CutPrefix(text, kind.prefix()); ok {
			return ClusterIdentity(kind, name)
		}
	}
	return Subject{}, &Error{
		Stage: StageSubject, Code: CodeSubjectInvalid,
		Fix: "write system:serviceaccount:<namespace>:<name>, or lanyard.dev:<kind>: and the names of an object",
		Err: fmt.Errorf("%.80q is not the text of a subject of a known kind", text),
	}
}

// controllerText is what [Subject.String] returns for the controller.
const controllerText = "controller"

// prefix returns the beginning of [Subject.String] for all subjects of a kind. The subject's names
// follow the prefix.
func (k Kind) prefix() string {
	if k == KindServiceAccount {
		return "system:serviceaccount:"
	}
	return "lanyard.dev:" + strings.ToLower(string(k)) + ":"
}

// Account is the state of a subject at one moment.
type Account struct {
	// Subject is the subject of this account.
	Subject Subject
	// UID distinguishes the subject from an earlier subject of the same name. Required.
	UID string
	// Attributes say which cloud identity the subject wants. The keys are those that the provider
	// documents. A ServiceAccount has attributes in its annotations, a WorkloadIdentity in its
	// providerConfig. The tenant writes the attributes, so they are not trusted: the cloud decides
	// whether the subject gets the identity. Callers share the map and must not change it.
	Attributes map[string]string
	// Fingerprint becomes part of the token's [Key]. It is a keyed hash, made by the function
	// [Fingerprint]. The hash covers all attributes, and all else about the subject that decides
	// the token. In a chain of identities, for example, it also covers the source identity.
	// Fingerprint may be empty if the cloud identity and the UID are enough to tell the subject's
	// tokens from others.
	Fingerprint string
}

// ObjectReference names an object. It is comparable; its zero value is no object.
type ObjectReference struct {
	// APIVersion is group and version of the object's API, such as "toolkit.lanyard.dev/v1alpha1".
	APIVersion string
	// Kind, Name and UID identify the object. All are required.
	Kind, Name, UID string
	// Namespace is the namespace of the object; empty for a cluster-scoped object.
	Namespace string
}

// encoded returns the reference as text for a [Key]; empty for the zero value.
func (r ObjectReference) encoded() string {
	if r == (ObjectReference{}) {
		return ""
	}
	return strings.Join([]string{escape(r.APIVersion), escape(r.Kind), escape(r.Namespace), escape(r.Name), escape(r.UID)}, ",")
}
