// Package attribute says where subjects name the cloud identity that they want.
package attribute

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// Attribute is one thing that a subject says about its identity.
type Attribute struct {
	// Annotation is its name on a ServiceAccount.
	Annotation string
	// Field is its name in the providerConfig of subjects of other kinds.
	Field string
}

// Of is the account's value. Named is false if the account does not have the attribute at all, and true if its value is empty.
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

// At says, for people, where the subject has the attribute.
func (a Attribute) At(subject auth.Subject) string {
	if subject.Kind() == auth.KindServiceAccount {
		return fmt.Sprintf("annotation %s of ServiceAccount %s/%s", a.Annotation, subject.Namespace(), subject.Name())
	}
	return fmt.Sprintf("providerConfig.%s of %s %s/%s", a.Field, subject.Kind(), subject.Namespace(), subject.Name())
}

// Missing is the error for a subject without the attribute. What is the thing that it should name, such as "IAM role", and value is what
// to set it to.
func (a Attribute) Missing(subject auth.Subject, what, value string) error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing,
		Fix: "set " + a.At(subject) + " to " + value,
		Err: fmt.Errorf("%s/%s names no %s", subject.Namespace(), subject.Name(), what),
	}
}

// Invalid is the error for a value that was refused with err, whose fix is kept if it is of package endpoint. If several attributes make
// up an identity, an [*Error] in err's chain tells which of them is at fault.
func (a Attribute) Invalid(subject auth.Subject, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		a, err = e.Attribute, e.Err
	}
	return refusal.Of(auth.StageIdentity, auth.CodeIdentityInvalid, a.At(subject), err)
}

// Empty is why an attribute that is present but empty is refused: whoever wrote it meant something. What is the thing that it should
// name, such as "tenant ID".
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
