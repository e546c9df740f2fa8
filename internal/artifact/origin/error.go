package origin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// Code says what failed. The values are stable and meant for programs.
type Code string

// The codes of an Error.
const (
	// CodeInvalidURL is a spec.url or spec.image without a valid repository.
	CodeInvalidURL Code = "invalid-url"
	// CodeInvalidReference is an invalid spec.ref, spec.layerSelector or spec.exclusionList.
	CodeInvalidReference Code = "invalid-reference"
	// CodeUnreachable is a server that gives no answer: DNS, TCP, TLS, proxy, deadline, a broken
	// connection.
	CodeUnreachable Code = "unreachable"
	// CodeUnauthorized is a credential that is missing, unknown, expired or wrongly signed.
	CodeUnauthorized Code = "unauthorized"
	// CodeDenied is HTTP 403: the credential is valid but has too few rights, or there is no
	// credential.
	CodeDenied Code = "denied"
	// CodeNotFound is HTTP 404 for the repository or bucket.
	CodeNotFound Code = "not-found"
	// CodeTagNotFound is HTTP 404 for the tag or digest. The repository may exist.
	CodeTagNotFound Code = "tag-not-found"
	// CodeBlobNotFound is HTTP 404 for a layer.
	CodeBlobNotFound Code = "blob-not-found"
	// CodeThrottled is HTTP 429, or a server's own code with this meaning. RetryAfter says how long
	// to wait, if the server says so.
	CodeThrottled Code = "throttled"
	// CodeServer is HTTP 5xx, after the retries.
	CodeServer Code = "server"
	// CodeChanged means that an object in a bucket has changed since the bucket was listed.
	CodeChanged Code = "changed"
	// CodeProtocol is an answer that the protocol does not allow, a redirect that is refused, or a
	// request that must not be sent.
	CodeProtocol Code = "protocol"
	// CodeDigestMismatch is content with another digest than announced.
	CodeDigestMismatch Code = "digest-mismatch"
	// CodeTruncated is content that ended before its announced length.
	CodeTruncated Code = "truncated"
	// CodeTooLarge is content or an answer that is larger than a limit.
	CodeTooLarge Code = "too-large"
	// CodeUnsupportedMediaType is an artifact of an unsupported kind, or without the requested
	// layer.
	CodeUnsupportedMediaType Code = "unsupported-media-type"
	// CodeNoMatch is a repository without a tag in the requested range.
	CodeNoMatch Code = "no-match"
)

// Error is a failed operation on a repository or bucket.
type Error struct {
	// Server is the server that answered or should have answered. Its host is empty if no server
	// was asked.
	Server
	// Code says what failed.
	Code Code
	// Field is the object's field that must change ("spec.url", "spec.bucketName"); empty if no
	// field must change.
	Field string
	// Status is the HTTP status, 0 if there was no answer.
	Status int
	// ServerCode is the server's own error code, such as NAME_UNKNOWN; empty if there is no known
	// code.
	ServerCode string
	// RetryAfter is the pause that the server asked for, at most an hour; 0 if it asked for none.
	// It is set only with CodeThrottled and CodeServer.
	RetryAfter time.Duration
	// Permission is the permission that the identity lacks, as the cloud names it; empty if
	// unknown. It is set only with CodeDenied.
	Permission string
	// Fix is the next step in one clause; empty means the usual next step for Code.
	Fix string
	// Err is the detail; never nil. Its text contains no secret.
	Err error
}

// Error returns field, host, cause and next step in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	if e.Host != "" {
		b.WriteString(string(e.Kind) + " " + e.Host + ": ")
	}
	b.WriteString(e.Err.Error())
	if e.Anonymous && (e.Code == CodeUnauthorized || e.Code == CodeDenied) {
		b.WriteString(": no credential was sent")
	}
	b.WriteString("; " + cmp.Or(e.Fix, e.step()))
	return b.String()
}

// Unwrap returns the detail.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the Code of the first *Error in err's chain, or "" if there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// NoAnswer returns the error of a request that ended with err and without an answer. If err's chain
// has an *Error, NoAnswer returns that *Error unchanged.
func (s Server) NoAnswer(ctx context.Context, err error) *Error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	e := &Error{Server: s, Code: CodeUnreachable}
	if cause := context.Cause(ctx); cause != nil {
		e.Err = fmt.Errorf("no answer in time: %w", cause)
		return e
	}
	why := attempt.Explain(err)
	e.Err, e.Fix = fmt.Errorf("no answer: %w", why), why.Fix(s.side())
	if why.Cause == attempt.TooSlow {
		e.Err = why
	}
	return e
}

// Answered returns the error for an answer whose HTTP status is not a success. If the answer has
// more details, the caller adds them to the error.
func (s Server) Answered(status int) *Error {
	e := &Error{Server: s, Status: status}
	// A request without TLS needs no CONNECT, so the proxy's 407 arrives as the answer.
	if status == http.StatusProxyAuthRequired {
		why := attempt.Explain(&attempt.ProxyError{Status: status})
		e.Code, e.Err, e.Fix = CodeUnreachable, fmt.Errorf("no answer: %w", why), why.Fix(s.side())
		return e
	}
	e.Code = codeOf(status)
	e.Err = errors.New(strings.TrimSpace(fmt.Sprintf("HTTP %d %s", status, http.StatusText(status))))
	return e
}

func codeOf(status int) Code {
	switch {
	case status == http.StatusUnauthorized:
		return CodeUnauthorized
	case status == http.StatusForbidden:
		return CodeDenied
	case status == http.StatusNotFound:
		return CodeNotFound
	case status == http.StatusPreconditionFailed:
		return CodeChanged
	case status == http.StatusTooManyRequests:
		return CodeThrottled
	case status >= 500 || status == http.StatusRequestTimeout:
		return CodeServer
	default:
		return CodeProtocol
	}
}
