package auth

import (
	"errors"
	"fmt"
	"time"
)

// Stage is a step on the way to a token. An [Error] has the stage that failed.
type Stage string

// The stages, in the order in which they run.
const (
	// StageSubject checks the options of the call and finds the subject.
	StageSubject Stage = "subject"
	// StageIdentity finds the provider's identity that the subject names.
	StageIdentity Stage = "identity"
	// StageTokenRequest makes the proof, for example with a Kubernetes TokenRequest; see [Prover].
	StageTokenRequest Stage = "token-request"
	// StageExchange calls the provider's security token service.
	StageExchange Stage = "exchange"
	// StageImpersonation exchanges the token for a token of another identity at the same provider.
	StageImpersonation Stage = "impersonation"
	// StageRegistry exchanges the token for registry credentials.
	StageRegistry Stage = "registry"
)

// Code identifies a failure for programs. Codes are stable; docs/errors.md has a section for each.
type Code string

// The codes. [Error.Temporary] says which are temporary.
const (
	// CodeSubjectInvalid: no subject was named, or its name is not valid.
	CodeSubjectInvalid Code = "SubjectInvalid"
	// CodeSubjectNotFound: the subject does not exist.
	CodeSubjectNotFound Code = "SubjectNotFound"
	// CodeSubjectReplaced: the subject was deleted and created anew before its proof was made.
	CodeSubjectReplaced Code = "SubjectReplaced"
	// CodeIdentityMissing: the subject does not say which cloud identity it wants.
	CodeIdentityMissing Code = "IdentityMissing"
	// CodeIdentityInvalid: the cloud identity that the subject names is not valid.
	CodeIdentityInvalid Code = "IdentityInvalid"
	// CodeNotGranted: the namespace is not granted the identity that it asks for.
	CodeNotGranted Code = "NotGranted"
	// CodeOptionUnsupported: the provider does not support an option of the call.
	CodeOptionUnsupported Code = "OptionUnsupported"
	// CodeOptionInvalid: an option of the call is malformed.
	CodeOptionInvalid Code = "OptionInvalid"
	// CodeEndpointRefused: an endpoint or registry host does not belong to the provider and is not
	// otherwise allowed.
	CodeEndpointRefused Code = "EndpointRefused"
	// CodeRegionMissing: the region of the security token service is not known.
	CodeRegionMissing Code = "RegionMissing"
	// CodeAudienceRefused: a proof for this audience would be dangerous, or there is no audience.
	CodeAudienceRefused Code = "AudienceRefused"
	// CodeProofDenied: the caller is not allowed to get a proof of this subject.
	CodeProofDenied Code = "ProofDenied"
	// CodeProofInvalid: the proof differs from the request for it, or is not valid.
	CodeProofInvalid Code = "ProofInvalid"
	// CodeTrustRefused: the cloud does not let this subject have this identity.
	CodeTrustRefused Code = "TrustRefused"
	// CodePermissionDenied: the cloud accepted the identity, but the identity lacks a permission.
	CodePermissionDenied Code = "PermissionDenied"
	// CodeRefused: the called service refused for a reason that no other code describes.
	CodeRefused Code = "Refused"
	// CodeResponseInvalid: the answer of the called service is not a credential.
	CodeResponseInvalid Code = "ResponseInvalid"
	// CodeThrottled: too many calls; temporary.
	CodeThrottled Code = "Throttled"
	// CodeUnavailable: the called service failed (HTTP 5xx); temporary.
	CodeUnavailable Code = "Unavailable"
	// CodeUnreachable: there was no answer (DNS, connection, TLS or timeout); temporary.
	CodeUnreachable Code = "Unreachable"
)

// Error says why there is no token. It never contains a token, an assertion or a response body.
type Error struct {
	// Stage is the step that failed.
	Stage Stage
	// Code is stable, for programs.
	Code Code
	// Fix is the next step to take: one sentence for people, without a full stop at its end.
	Fix string
	// RetryAfter is the wait that the called service asked for; zero if it asked for none.
	RetryAfter time.Duration
	// Err is the cause, safe to print.
	Err error
}

// Error returns "<stage>: <cause>; <fix>", with the code in place of the cause if Err is nil.
func (e *Error) Error() string {
	msg := fmt.Sprintf("%s: %s", e.Stage, e.Code)
	if e.Err != nil {
		msg = fmt.Sprintf("%s: %v", e.Stage, e.Err)
	}
	if e.Fix != "" {
		msg += "; " + e.Fix
	}
	return msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether the same call may succeed later without any change. After an error that
// is not temporary, a cache no longer serves the token that it stored under the call's [Key].
func (e *Error) Temporary() bool {
	return e.Code == CodeThrottled || e.Code == CodeUnavailable || e.Code == CodeUnreachable
}

// IsTemporary reports whether err is a temporary [*Error]. It returns false for any other error.
func IsTemporary(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Temporary()
}

// CodeOf returns the code of the first [*Error] in err's chain, or "" if there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
