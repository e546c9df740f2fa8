package auth

import (
	"fmt"
	"strings"
)

// Kind says what sort of thing a [Subject] is.
type Kind string

const (
	// KindServiceAccount is a Kubernetes ServiceAccount.
	KindServiceAccount Kind = "ServiceAccount"
	// KindWorkloadIdentity is a WorkloadIdentity of Lanyard's own issuer.
	KindWorkloadIdentity Kind = "WorkloadIdentity"
	// KindController is the program that calls, with the identity of its own environment.
	KindController Kind = "Controller"
)

// Subject is what a credential is issued to. It is a comparable value, made once by a constructor that checks it.
// The zero Subject is nobody: [GetToken] refuses it.
type Subject struct {
	kind      Kind
	namespace string
	name      string
}

// Controller is the calling program itself. Nothing else ever stands for it: no empty name, no missing option.
func Controller() Subject { return Subject{kind: KindController} }

// ServiceAccount is the ServiceAccount of that name. Both names are needed and must be what Kubernetes accepts
// (namespace: RFC 1123 label, at most 63 bytes; name: RFC 1123 subdomain, at most 253); otherwise the error is an
// [*Error] with [CodeSubjectInvalid]. A name without a namespace is an error and not the controller.
func ServiceAccount(namespace, name string) (Subject, error) {
	return namespaced(KindServiceAccount, namespace, name)
}

// WorkloadIdentity is the WorkloadIdentity object of that name, under the same rules as [ServiceAccount].
func WorkloadIdentity(namespace, name string) (Subject, error) {
	return namespaced(KindWorkloadIdentity, namespace, name)
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

// Kind is empty for the zero Subject.
func (s Subject) Kind() Kind { return s.kind }

// Namespace is the tenant the subject belongs to; empty for the controller.
func (s Subject) Namespace() string { return s.namespace }

// Name is the object's name; empty for the controller.
func (s Subject) Name() string { return s.name }

// IsZero reports whether s is nobody.
func (s Subject) IsZero() bool { return s == Subject{} }

// String names the subject as relying parties do: system:serviceaccount:<namespace>:<name> for a ServiceAccount
// (the sub claim of its tokens), controller, or lanyard.dev:workloadidentity:<namespace>:<name>.
func (s Subject) String() string {
	switch s.kind {
	case KindServiceAccount:
		return "system:serviceaccount:" + s.namespace + ":" + s.name
	case KindController:
		return "controller"
	case "":
		return "nobody"
	default:
		return "lanyard.dev:" + strings.ToLower(string(s.kind)) + ":" + s.namespace + ":" + s.name
	}
}

// Account is what the source of truth knows of a subject at one moment.
type Account struct {
	// Subject is the subject that this describes.
	Subject Subject
	// UID distinguishes the subject from an earlier one of the same name. Required.
	UID string
	// Attributes are the subject's own statements about its cloud identity, keyed as its provider documents them:
	// the annotations of a ServiceAccount, the providerConfig of a WorkloadIdentity. They are written by the tenant
	// and therefore never trusted: the cloud decides. Read only; shared between callers.
	Attributes map[string]string
}
