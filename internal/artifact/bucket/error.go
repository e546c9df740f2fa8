package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/disconnection"
)

// Code says what failed. The values are stable and meant for programs.
type Code string

// The codes of an Error.
const (
	// CodeNotFound is HTTP 404 for the bucket.
	CodeNotFound Code = "not-found"
	// CodeUnauthorized is a credential that is missing, unknown, expired or wrongly signed.
	CodeUnauthorized Code = "unauthorized"
	// CodeForbidden is HTTP 403: the credential is accepted and not enough.
	CodeForbidden Code = "forbidden"
	// CodeUnreachable is a service that gives no answer: DNS, TCP, TLS, proxy, deadline, a broken connection.
	CodeUnreachable Code = "unreachable"
	// CodeThrottled is HTTP 429, or a service's own word for it. RetryAfter says how long to wait, when the service does.
	CodeThrottled Code = "throttled"
	// CodeServer is HTTP 5xx, after the retries.
	CodeServer Code = "server"
	// CodeChanged is an object that is no longer what the listing said.
	CodeChanged Code = "changed"
	// CodeTooLarge is a bucket or an answer above a limit.
	CodeTooLarge Code = "too-large"
	// CodeProtocol is an answer that cannot be understood, a redirect, or a request that must not leave.
	CodeProtocol Code = "protocol"
)

// Error is a failed operation on a bucket.
type Error struct {
	// Code is what failed.
	Code Code
	// Field is the object's field that must change ("spec.bucketName"), empty when none must.
	Field string
	// Host is the host[:port] that answered or should have, empty when none was asked.
	Host string
	// Status is the HTTP status, 0 when there was no answer.
	Status int
	// ServiceCode is the service's own error code, such as NoSuchBucket, if it is one of those that are known; else empty.
	ServiceCode string
	// RetryAfter is the pause that the service asked for, at most an hour; 0 when it did not.
	RetryAfter time.Duration
	// Fix is what a person can do, one sentence; may be empty.
	Fix string
	// Err is the detail; never nil. It holds nothing of an answer's body.
	Err error
}

// Error returns field, host, detail and fix in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	if e.Host != "" {
		b.WriteString("endpoint " + e.Host + ": ")
	}
	b.WriteString(e.Err.Error())
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

// Unwrap returns the detail.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the Code of the first *Error in err's chain, or "" when there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// CredentialError carries an error of whoever gives the credentials through a cloud's client, whose own words would only
// surround it.
type CredentialError struct{ Err error }

// Error is the text of the error inside.
func (e *CredentialError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *CredentialError) Unwrap() error { return e.Err }

// Explain turns what a cloud's client returned into what a [Storage] returns. Nothing of the client's own text is taken over: it
// may quote an answer.
func Explain(ctx context.Context, host string, err error) error {
	if err == nil {
		return nil
	}
	if credential, ok := errors.AsType[*CredentialError](err); ok {
		return credential.Err
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if cause := context.Cause(ctx); cause != nil {
		return &Error{Code: CodeUnreachable, Host: host, Err: fmt.Errorf("no answer in time: %w", cause)}
	}
	return &Error{
		Code: CodeProtocol, Host: host, Field: "spec.endpoint", Fix: "check that the endpoint serves buckets of this provider",
		Err: errors.New("the answer cannot be understood"),
	}
}

// connectionError is a request without an answer.
func connectionError(ctx context.Context, host string, err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if cause := context.Cause(ctx); cause != nil {
		return &Error{Code: CodeUnreachable, Host: host, Err: fmt.Errorf("no answer in time: %w", cause)}
	}
	return &Error{
		Code: CodeUnreachable, Host: host, Fix: disconnection.Fix(err, "endpoint"),
		Err: fmt.Errorf("no answer: %w", disconnection.Hide(err)),
	}
}
