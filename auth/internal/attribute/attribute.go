// Package attribute reads the annotations and fields in which subjects name their cloud identity.
package attribute

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// Attribute is an annotation or a field whose value is a subject's cloud identity, or a part of the
// identity.
type Attribute struct {
	// Annotation is the attribute's name on a ServiceAccount.
	Annotation string
	// Field is the attribute's name in the providerConfig of a WorkloadIdentity.
	Field string
	// Spec is the attribute's name in the spec of a subject that is neither a ServiceAccount nor a
	// WorkloadIdentity, such as an AWSClusterRoleIdentity.
	Spec string
}

// Of returns the account's value of the attribute, and reports whether the account has the
// attribute. An attribute with an empty value counts too.
func (a Attribute) Of(account auth.Account) (value string, named bool) {
	_, name := a.place(account.Subject)
	value, named = account.Attributes[name]
	return value, named
}

// place returns the attribute's name for subjects of the given subject's kind. Its first result is
// the prefix of the name in errors, such as "annotation ".
func (a Attribute) place(subject auth.Subject) (before, name string) {
	switch subject.Kind() {
	case auth.KindServiceAccount:
		return "annotation ", a.Annotation
	case auth.KindWorkloadIdentity:
		return "providerConfig.", a.Field
	default:
		return "spec.", a.Spec
	}
}

// At returns text for errors, such as "annotation iam.gke.io/gcp-service-account of ServiceAccount
// tenant-a/reader".
func (a Attribute) At(subject auth.Subject) string {
	before, name := a.place(subject)
	return before + name + " of " + nameOf(subject)
}

// nameOf returns the subject's kind, namespace and name, for errors.
func nameOf(subject auth.Subject) string { return string(subject.Kind()) + " " + keyOf(subject) }

// keyOf returns the subject's namespace and name, or only the name if there is no namespace.
func keyOf(subject auth.Subject) string {
	if subject.Namespace() == "" {
		return subject.Name()
	}
	return subject.Namespace() + "/" + subject.Name()
}

// Missing returns the error for a subject without the attribute. The error says what the attribute
// should name, such as "IAM role". Its Fix says which value to set.
//
// The account of a WorkloadIdentity has the attributes of only one provider: that of its
// targetSystem.type. So an attribute may also be missing because targetSystem.type is wrong. For a
// WorkloadIdentity, Fix also says to check targetSystem.type.
func (a Attribute) Missing(subject auth.Subject, what, value string) error {
	missing := &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing,
		Fix: "set " + a.At(subject) + " to " + value,
		Err: fmt.Errorf("%s names no %s", keyOf(subject), what),
	}
	if subject.Kind() == auth.KindWorkloadIdentity {
		missing.Fix = "check that the targetSystem.type of " + nameOf(subject) + " is the object's cloud (spec.provider, or that of a file's key), and " + missing.Fix
	}
	return missing
}

// Invalid returns the error for a value of the attribute that was refused with err. If err is or
// wraps an [*Error], the invalid attribute is the one in that Error. If err is or wraps an
// [*endpoint.Error], the result has the Fix of that error.
func (a Attribute) Invalid(subject auth.Subject, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		a, err = e.Attribute, e.Err
	}
	return refusal.Of(auth.StageIdentity, auth.CodeIdentityInvalid, a.At(subject), err)
}

// Empty returns the error for an attribute that is present but empty. The error says what the
// attribute should name, such as "tenant ID".
func Empty(what string) error {
	return &endpoint.Error{What: what, Reason: endpoint.ReasonEmpty, Detail: "it is empty", Fix: "remove it, or name a " + what}
}

// Error says which of the several attributes of an identity is invalid.
type Error struct {
	Attribute Attribute
	Err       error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
