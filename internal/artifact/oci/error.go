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

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

// Bounds of the parts of an answer that an error quotes.
const (
	maxErrorBody = 64 << 10
	maxMessage   = 300 // bytes of the registry's message that are shown
)

// target is the kind of resource that was requested. It decides what HTTP 404 means.
type target int

const (
	targetRegistry target = iota
	targetTags
	targetManifest
	targetBlob
	targetUpload
)

// responseError converts an unexpected answer to an Error. It reads the body and does not close it.
func (s *session) responseError(resp *http.Response, t target) *origin.Error {
	var body struct {
		Errors []transport.Diagnostic `json:"errors"`
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil {
		_ = json.Unmarshal(raw, &body) // a body in another format has no diagnostics
	}
	answered := &transport.Error{Errors: body.Errors, StatusCode: resp.StatusCode, Request: resp.Request}
	return s.statusError(answered, attempt.RetryAfter(resp.Header), t)
}

// statusError returns the error for a server's answer. The answer may have no Request.
func (s *session) statusError(answered *transport.Error, retryAfter time.Duration, t target) *origin.Error {
	server := s.server
	if answered.Request != nil {
		server.Host = s.clean(answered.Request.URL.Host)
	}
	e := server.Answered(answered.StatusCode)
	if len(answered.Errors) > 0 {
		e.ServerCode = s.clean(string(answered.Errors[0].Code))
		e.Err = fmt.Errorf("%w: %s", e.Err, e.ServerCode)
		if m := s.clean(answered.Errors[0].Message); m != "" {
			e.Err = fmt.Errorf("%w: %s", e.Err, m)
		}
	}
	switch {
	case e.ServerCode == "TOOMANYREQUESTS" && e.Code != origin.CodeUnauthorized && e.Code != origin.CodeDenied:
		e.Code = origin.CodeThrottled
	case e.Code == origin.CodeNotFound:
		e.Code, e.Field = s.notFound(e.ServerCode, t)
	}
	if e.Code == origin.CodeThrottled || e.Code == origin.CodeServer {
		e.RetryAfter = retryAfter
	}
	return e
}

func (s *session) notFound(registryCode string, t target) (c origin.Code, field string) {
	switch {
	case registryCode == "NAME_UNKNOWN" || t == targetTags || t == targetUpload:
		return origin.CodeNotFound, s.field
	case registryCode == "BLOB_UNKNOWN" || t == targetBlob:
		return origin.CodeBlobNotFound, ""
	case t == targetManifest && s.server.CommandLine:
		return origin.CodeTagNotFound, ""
	case t == targetManifest:
		return origin.CodeTagNotFound, "spec.ref"
	default:
		return origin.CodeProtocol, s.field
	}
}

// requestError returns the Error for a request that failed with err and got no usable answer.
func (s *session) requestError(ctx context.Context, err error, t target) *origin.Error {
	if origin.CodeOf(err) != "" || context.Cause(ctx) != nil {
		return s.server.NoAnswer(ctx, err)
	}
	if answered, ok := errors.AsType[*transport.Error](err); ok {
		return s.statusError(answered, s.lastRetryAfter(), t)
	}
	failed, ok := errors.AsType[*url.Error](err)
	if !ok {
		// Other errors come from the authentication handshake. They may quote an answer's body, so
		// their text is dropped.
		return &origin.Error{
			Server: s.server, Code: origin.CodeProtocol, Field: s.field,
			Fix: "check that the host is an OCI registry, and that its realm has TLS and a public address",
			Err: errors.New(
				"the authentication handshake failed: the registry or its token server sent an unusable answer, or the realm is refused"),
		}
	}
	// If https fails at a host that looks local, the library go-containerregistry tries http. Then
	// err wraps both errors. The variable failed has the error of https, which says more.
	if plain, ok := errors.AsType[*plainError](failed.Err); ok {
		return plain.refused
	}
	return s.server.NoAnswer(ctx, failed.Err)
}

// clean makes a server's text fit for a status condition: one line, short, without credentials that
// this session has sent.
func (s *session) clean(text string) string {
	text = strings.TrimSpace(plain.Text(s.redact(text)))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}
