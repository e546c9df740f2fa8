// Package refusal has the errors for what every provider refuses before anything is sent.
package refusal

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Of turns a refusal of package endpoint into an [*auth.Error]. Where names the input; it is empty if the refusal says enough itself.
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

// Unsupported refuses an option that means nothing at the provider, such as "an STS region".
func Unsupported(provider, what, fix string) error {
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeOptionUnsupported, Fix: fix,
		Err: fmt.Errorf("provider %s does not support %s", provider, what),
	}
}

// Detour refuses to send the controller's own identity through something that a tenant may have chosen, such as a "proxy".
func Detour(way string) error {
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeEndpointRefused,
		Fix: "name a ServiceAccount, or leave out the " + way + " (the controller's own comes from its environment)",
		Err: errors.New("the controller's identity is not sent through the " + way + " of the call's choice"),
	}
}

// ForeignToken refuses to get registry credentials for a token that the provider did not make.
func ForeignToken(own string, got auth.Token) error {
	return &auth.Error{
		Stage: auth.StageRegistry, Code: auth.CodeResponseInvalid,
		Fix: "pass the token that this provider made",
		Err: fmt.Errorf("registry credentials are given for %s, not for a %T", own, got),
	}
}

// NotForSDK refuses to give an SDK a token that only a registry takes.
func NotForSDK(takes string, got auth.Token) error {
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeOptionUnsupported,
		Fix: "leave out the image repository",
		Err: fmt.Errorf("the SDK takes %s, not a %T", takes, got),
	}
}
