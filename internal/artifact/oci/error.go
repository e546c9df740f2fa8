package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/lanyard-dev/lanyard/internal/artifact/disconnection"
	"github.com/lanyard-dev/lanyard/internal/artifact/retry"
)

// Code says what failed. The values are stable and meant for programs.
type Code string

// The codes of an Error.
const (
	// CodeInvalidURL is a spec.url or spec.image that names no repository.
	CodeInvalidURL Code = "invalid-url"
	// CodeInvalidReference is a spec.ref, spec.layerSelector or spec.exclusionList that cannot be understood.
	CodeInvalidReference Code = "invalid-reference"
	// CodeUnreachable is a registry that gives no answer: DNS, TCP, TLS, proxy, deadline.
	CodeUnreachable Code = "unreachable"
	// CodeUnauthorized is HTTP 401: the credentials are missing or not accepted.
	CodeUnauthorized Code = "unauthorized"
	// CodeDenied is HTTP 403: the credentials are accepted and not enough.
	CodeDenied Code = "denied"
	// CodeRepositoryNotFound is HTTP 404 for the repository.
	CodeRepositoryNotFound Code = "repository-not-found"
	// CodeTagNotFound is HTTP 404 for the tag or digest in a repository that may exist.
	CodeTagNotFound Code = "tag-not-found"
	// CodeBlobNotFound is HTTP 404 for a layer.
	CodeBlobNotFound Code = "blob-not-found"
	// CodeThrottled is HTTP 429. RetryAfter says how long to wait, when the registry does.
	CodeThrottled Code = "throttled"
	// CodeServer is HTTP 5xx, after the retries.
	CodeServer Code = "server"
	// CodeProtocol is an answer that the distribution specification does not allow, or a redirect that is refused.
	CodeProtocol Code = "protocol"
	// CodeDigestMismatch is content that is not what its digest says.
	CodeDigestMismatch Code = "digest-mismatch"
	// CodeTruncated is content that ended before its announced length.
	CodeTruncated Code = "truncated"
	// CodeTooLarge is content above a limit.
	CodeTooLarge Code = "too-large"
	// CodeUnsupportedMediaType is an artifact of a kind that cannot be used, or without the layer asked for.
	CodeUnsupportedMediaType Code = "unsupported-media-type"
	// CodeNoMatch is a repository without a tag in the range asked for.
	CodeNoMatch Code = "no-match"
)

// Error is a failed registry operation.
type Error struct {
	// Code is what failed.
	Code Code
	// Field is the object's field that must change ("spec.url", "spec.image"), empty when none must.
	Field string
	// Host is the host[:port] that answered or should have, empty when none was asked.
	Host string
	// Status is the HTTP status, 0 when there was no answer.
	Status int
	// RegistryCode is the registry's own error code, such as NAME_UNKNOWN; empty when it sent none.
	RegistryCode string
	// RetryAfter is the pause that the server asked for, at most an hour; 0 when it did not. Only with CodeThrottled
	// and CodeServer.
	RetryAfter time.Duration
	// Fix is what a person can do, one sentence; may be empty.
	Fix string
	// Err is the detail; never nil. It prints no secret.
	Err error
}

// Error returns host, detail and fix in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	if e.Host != "" {
		b.WriteString("registry " + e.Host + ": ")
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

// Bounds of what is taken over from an answer.
const (
	maxErrorBody = 64 << 10
	maxMessage   = 300 // bytes of the registry's message that are shown
)

// target is what a request asked for; it tells the meanings of 404 apart.
type target int

const (
	targetRegistry target = iota
	targetTags
	targetManifest
	targetBlob
)

type diagnostic struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// responseError turns an unexpected answer into an Error. It reads the body and does not close it.
func (s *session) responseError(resp *http.Response, t target) *Error {
	var body struct {
		Errors []diagnostic `json:"errors"`
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil {
		_ = json.Unmarshal(raw, &body) // another format means that there is nothing to take over
	}
	host := s.host
	if resp.Request != nil {
		host = resp.Request.URL.Host
	}
	e := s.statusError(host, resp.StatusCode, body.Errors, t)
	if e.Code == CodeThrottled || e.Code == CodeServer {
		e.RetryAfter = retry.After(resp.Header.Get("Retry-After"))
	}
	return e
}

func (s *session) statusError(host string, status int, diagnostics []diagnostic, t target) *Error {
	e := &Error{Host: s.clean(host), Status: status}
	detail := fmt.Sprintf("HTTP %d %s", status, http.StatusText(status))
	if len(diagnostics) > 0 {
		e.RegistryCode = s.clean(diagnostics[0].Code)
		detail += ": " + e.RegistryCode
		if m := s.clean(diagnostics[0].Message); m != "" {
			detail += ": " + m
		}
	}
	e.Err = errors.New(detail)
	switch {
	case status == http.StatusUnauthorized:
		e.Code, e.Fix = CodeUnauthorized, "check that the credentials are for this registry and not expired"
	case status == http.StatusForbidden:
		e.Code, e.Fix = CodeDenied, "grant this identity access to the repository"
	case status == http.StatusTooManyRequests || e.RegistryCode == "TOOMANYREQUESTS":
		e.Code = CodeThrottled
	case status == http.StatusNotFound:
		e.Code, e.Field, e.Fix = s.notFound(e.RegistryCode, t)
	case status >= 500 || status == http.StatusRequestTimeout:
		e.Code = CodeServer
	default:
		e.Code = CodeProtocol
	}
	return e
}

func (s *session) notFound(registryCode string, t target) (c Code, field, fix string) {
	switch {
	case registryCode == "NAME_UNKNOWN" || t == targetTags:
		return CodeRepositoryNotFound, s.field, "create the repository or correct the name"
	case registryCode == "BLOB_UNKNOWN" || t == targetBlob:
		return CodeBlobNotFound, "", "push the artifact again"
	case t == targetManifest:
		return CodeTagNotFound, "spec.ref", "push this tag or digest, or correct the reference"
	default:
		return CodeProtocol, s.field, "check that the host is an OCI registry"
	}
}

// requestError turns a request without a usable answer into an Error.
func (s *session) requestError(ctx context.Context, err error, t target) *Error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if cause := context.Cause(ctx); cause != nil {
		return &Error{Code: CodeUnreachable, Host: s.host, Err: fmt.Errorf("no answer in time: %w", cause)}
	}
	if answered, ok := errors.AsType[*transport.Error](err); ok {
		return s.handshakeError(answered, t)
	}
	var failed *url.Error
	if !errors.As(err, &failed) {
		// The text of other errors of the handshake can hold an answer's body.
		return &Error{
			Code: CodeProtocol, Host: s.host, Field: s.field,
			Fix: "check that the host is an OCI registry, and that its realm has TLS and a public address",
			Err: errors.New("the authentication handshake failed: the registry or its token server sent an unusable answer, or the realm is refused"),
		}
	}
	// Of several attempts this is the first.
	if plain, ok := errors.AsType[*plainError](failed.Err); ok {
		return plain.refused
	}
	return &Error{
		Code: CodeUnreachable, Host: s.host, Fix: disconnection.Fix(failed.Err, "registry"),
		Err: fmt.Errorf("no answer: %w", disconnection.Hide(failed.Err)),
	}
}

func (s *session) handshakeError(answered *transport.Error, t target) *Error {
	host := s.host
	if answered.Request != nil {
		host = answered.Request.URL.Host
	}
	diagnostics := make([]diagnostic, 0, len(answered.Errors))
	for _, d := range answered.Errors {
		diagnostics = append(diagnostics, diagnostic{Code: string(d.Code), Message: d.Message})
	}
	e := s.statusError(host, answered.StatusCode, diagnostics, t)
	if e.Code == CodeThrottled || e.Code == CodeServer {
		e.RetryAfter = s.lastRetryAfter()
	}
	return e
}

// clean makes a stranger's text fit for a condition: one line, short, without a credential that this session has sent.
func (s *session) clean(text string) string {
	text = s.redact(text)
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	text = strings.TrimSpace(text)
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}
