// Package attribute says where subjects write which identity of a cloud they want.
package attribute

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// Attribute is one thing that a subject says of its identity.
type Attribute struct {
	// Annotation is its name on a ServiceAccount.
	Annotation string
	// Field is its name in the providerConfig of subjects of other kinds.
	Field string
}

// Of is what the account says; named tells saying nothing from not saying it.
func (a Attribute) Of(account auth.Account) (value string, named bool) {
	value, named = account.Attributes[a.name(account.Subject)]
	return value, named
}

func (a Attribute) name(subject auth.Subject) string {
	if subject.Kind() == auth.KindServiceAccount {
		return a.Annotation
	}
	return a.Field
}

// At says for people where the subject writes it.
func (a Attribute) At(subject auth.Subject) string {
	if subject.Kind() == auth.KindServiceAccount {
		return fmt.Sprintf("annotation %s of ServiceAccount %s/%s", a.Annotation, subject.Namespace(), subject.Name())
	}
	return fmt.Sprintf("providerConfig.%s of %s %s/%s", a.Field, subject.Kind(), subject.Namespace(), subject.Name())
}

// Missing is the error of a subject without it. What is the thing that is not named, such as "IAM role", and value what to set it to.
func (a Attribute) Missing(subject auth.Subject, what, value string) error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing,
		Fix: "set " + a.At(subject) + " to " + value,
		Err: fmt.Errorf("%s/%s names no %s", subject.Namespace(), subject.Name(), what),
	}
}

// Invalid is the error of a subject that says something else than can be, with the fix of package endpoint. Where several
// attributes make an identity, the [*Error] in err's chain tells which is at fault.
func (a Attribute) Invalid(subject auth.Subject, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		a, err = e.Attribute, e.Err
	}
	return refusal.Of(auth.StageIdentity, auth.CodeIdentityInvalid, a.At(subject), err)
}

// Empty is what is wrong with an attribute that is there and says nothing: whoever wrote it meant something. What is the thing that it
// should name, such as "tenant ID".
func Empty(what string) error {
	return &endpoint.Error{What: what, Reason: endpoint.ReasonEmpty, Detail: "it is empty", Fix: "remove it, or name a " + what}
}

// Error is what is wrong with one of several attributes.
type Error struct {
	Attribute Attribute
	Err       error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }
