// Package refusal makes the errors with which providers refuse calls before any request is sent.
// All providers share these errors.
package refusal

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Of turns err, the reason why an input was refused, into an [*auth.Error]. If err is or wraps an
// [*endpoint.Error], the result has the Fix of that error. The argument where is the name of the
// input, with which the result's text begins. It may be empty if err already contains the name.
func Of(stage auth.Stage, code auth.Code, where string, err error) error {
	fix := ""
	if e, ok := errors.AsType[*endpoint.Error](err); ok {
		err, fix = fmt.Errorf("%s: %s", e.What, e.Detail), e.Fix
	}
	if where != "" {
		err = fmt.Errorf("%s: %w", where, err)
	}
	return &auth.Error{Stage: stage, Code: code, Fix: fix, Err: err}
}

// Unsupported returns the error for an option that the provider does not support, such as "an STS
// region".
func Unsupported(provider, what, fix string) error {
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeOptionUnsupported, Fix: fix,
		Err: fmt.Errorf("provider %s does not support %s", provider, what),
	}
}

// Detour returns the error for an STS endpoint or a proxy that a tenant chose for a lent identity.
// A lent identity, such as the controller's, does not belong to the tenant. The argument way is
// "STS endpoint" or "proxy".
func Detour(way string) error {
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeEndpointRefused,
		Fix: "use an identity of the tenant's own, such as a ServiceAccount, or leave out the " + way,
		Err: errors.New("an identity that is only lent, such as the controller's, is never used with the " + way + " that a call chooses"),
	}
}

// ForeignToken returns the error for a token of another provider in a request for registry
// credentials. The error also names the type of the provider's own tokens.
func ForeignToken(own string, got auth.Token) error {
	return &auth.Error{
		Stage: auth.StageRegistry, Code: auth.CodeResponseInvalid,
		Fix: "pass the token that this provider made",
		Err: fmt.Errorf("registry credentials need %s, not a %T", own, got),
	}
}

// NotForSDK returns the error for registry credentials where an SDK needs a token. The error says
// which type the SDK takes.
func NotForSDK(takes string, got auth.Token) error {
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeOptionUnsupported,
		Fix: "leave out the image repository",
		Err: fmt.Errorf("the SDK takes %s, not a %T", takes, got),
	}
}
