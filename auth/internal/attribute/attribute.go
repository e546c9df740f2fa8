// Package attribute reads the annotations and fields in which subjects name their cloud identity.
package attribute

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// Attribute is an attribute whose value is a subject's cloud identity, or a part of the identity.
type Attribute struct {
	// Annotation is the attribute's name on a ServiceAccount.
	Annotation string
	// Field is the attribute's name in the providerConfig of a WorkloadIdentity.
	Field string
	// Spec is the attribute's name in the spec of subjects of other kinds, such as an
	// AWSClusterRoleIdentity.
	Spec string
}

// Of returns the account's value of the attribute. The result named is false if the account does
// not have the attribute. It is true if the value is present but empty.
func (a Attribute) Of(account auth.Account) (value string, named bool) {
	_, name := a.place(account.Subject)
	value, named = account.Attributes[name]
	return value, named
}

// place returns the attribute's name for the kind of subject, and the text that errors write before
// the name.
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

// At returns the attribute's name and the subject's object, for errors.
func (a Attribute) At(subject auth.Subject) string {
	before, name := a.place(subject)
	return before + name + " of " + nameOf(subject)
}

// nameOf returns kind, namespace and name of the subject's object, for errors.
func nameOf(subject auth.Subject) string { return string(subject.Kind()) + " " + keyOf(subject) }

// keyOf returns namespace and name of the subject's object, or only the name without a namespace.
func keyOf(subject auth.Subject) string {
	if subject.Namespace() == "" {
		return subject.Name()
	}
	return subject.Namespace() + "/" + subject.Name()
}

// Missing returns the error for a subject without the attribute. The parameter what is the thing in
// the attribute, such as "IAM role". The parameter value describes the value to set.
//
// The account of a WorkloadIdentity has only the attributes for its targetSystem.type. So for a
// WorkloadIdentity the fix also says to compare the provider with this type.
func (a Attribute) Missing(subject auth.Subject, what, value string) error {
	missing := &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing,
		Fix: "set " + a.At(subject) + " to " + value,
		Err: fmt.Errorf("%s names no %s", keyOf(subject), what),
	}
	if subject.Kind() == auth.KindWorkloadIdentity {
		missing.Fix = "check that spec.provider is the targetSystem.type of " + nameOf(subject) + ", and " + missing.Fix
	}
	return missing
}

// Invalid returns the error for a value that was refused with err. If err is an error of package
// endpoint, the returned error has the same fix. For an identity of several attributes, an [*Error]
// in err's chain says which attribute is invalid.
func (a Attribute) Invalid(subject auth.Subject, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		a, err = e.Attribute, e.Err
	}
	return refusal.Of(auth.StageIdentity, auth.CodeIdentityInvalid, a.At(subject), err)
}

// Empty returns the error for an attribute that is present but empty: its author meant some value.
// The parameter what is the thing in the attribute, such as "tenant ID".
func Empty(what string) error {
	return &endpoint.Error{What: what, Reason: endpoint.ReasonEmpty, Detail: "it is empty", Fix: "remove it, or name a " + what}
}

// Error says which attribute is invalid, for an identity of several attributes.
type Error struct {
	Attribute Attribute
	Err       error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
