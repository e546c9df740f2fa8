package gcp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// info returns a google.rpc.ErrorInfo, which callers store in [service.Refusal.Detail]. The pairs
// are its metadata: names and values alternate.
func info(reason string, pairs ...string) *errorInfo {
	out := errorInfo{
		Type: "type.googleapis.com/google.rpc.ErrorInfo", Reason: reason, Domain: "googleapis.com", Metadata: map[string]string{},
	}
	if reason == infoDenied {
		out.Domain = "iam.googleapis.com"
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		out.Metadata[pairs[i]] = pairs[i+1]
	}
	return &out
}

// errorInfo is google.rpc.ErrorInfo.
type errorInfo struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// preconditionFailure is google.rpc.PreconditionFailure, another detail of errors.
type preconditionFailure struct {
	Type       string      `json:"@type"`
	Violations []violation `json:"violations"`
}

type violation struct {
	Type    string `json:"type"`
	Subject string `json:"subject"`
}

const jsonType = "application/json; charset=UTF-8"

func writeJSON(contentType string, status int, body any) service.Answer {
	return service.Whole(status, contentType, append(wire.Must(json.MarshalIndent(body, "", "  ")), '\n'))
}

// oauth returns the error format of STS. Throttled and failed requests get the format that rpc
// returns, because Google's front end answers them. Source: RFC 6749 §5.2, RFC 8693 §2.2.2.
func oauth() service.Protocol {
	p := rpc()
	p.Refuse = func(r *service.Request, e *service.Refusal) service.Answer {
		if e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError {
			return rpc().Refuse(r, e)
		}
		return service.Whole(e.Status, jsonType, wire.Must(json.Marshal(struct {
			Error       string `json:"error"`
			Description string `json:"error_description"`
		}{e.Code, e.Message})))
	}
	p.Broken = service.Whole(http.StatusOK, jsonType, []byte(`{"access_token":"ya29.d.`))
	return p
}

// rpc returns the JSON error format of Google's APIs. Source: API design guide (AIP-193),
// google.rpc.Status.
func rpc() service.Protocol {
	return service.Protocol{
		Refuse:      refuseRPC,
		Failure:     service.Refuse(http.StatusInternalServerError, codeInternal, saysInternal),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, codeUnavailable, saysUnavailable),
		Throttled:   service.Refuse(http.StatusTooManyRequests, codeExhausted, saysExhausted).With(info(infoRate)),
		Broken:      service.Whole(http.StatusOK, jsonType, []byte("{\n  \"accessToken\": \"ya29.c.")),
	}
}

func refuseRPC(r *service.Request, e *service.Refusal) service.Answer {
	type status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []any  `json:"details,omitempty"`
	}
	s := status{Code: e.Status, Message: e.Message, Status: e.Code}
	if e.Detail != nil {
		s.Details = []any{e.Detail}
	}
	detail, ok := e.Detail.(*errorInfo)
	if e.Status == http.StatusUnauthorized {
		challenge := `Bearer realm="https://accounts.google.com/"`
		if ok && detail.Reason != infoMissing {
			challenge += `, error="invalid_token"`
		}
		r.Reply.Set("Www-Authenticate", challenge)
	}
	return writeJSON(jsonType, e.Status, map[string]status{"error": s})
}

// Codes of google.rpc.Code that are used in several places.
const (
	codeUnauthenticated = "UNAUTHENTICATED"
	codeDenied          = "PERMISSION_DENIED"
	codeInvalid         = "INVALID_ARGUMENT"
	codeNotFound        = "NOT_FOUND"
	codeExists          = "ALREADY_EXISTS"
	codeAborted         = "ABORTED"
	codePrecondition    = "FAILED_PRECONDITION"
	codeExhausted       = "RESOURCE_EXHAUSTED"
	codeUnavailable     = "UNAVAILABLE"
	codeInternal        = "INTERNAL"
)

// Google's messages for failures of a service. Source: Google Cloud APIs, "Errors: handling
// errors".
const (
	saysExhausted   = "Resource has been exhausted (e.g. check quota)."
	saysUnavailable = "The service is currently unavailable."
	saysInternal    = "Internal error encountered."
)

// Reasons of google.rpc.ErrorInfo. Source: Google, google.api.ErrorReason.
const (
	infoMissing = "CREDENTIALS_MISSING"
	infoExpired = "ACCESS_TOKEN_EXPIRED"
	infoBad     = "ACCESS_TOKEN_TYPE_UNSUPPORTED"
	infoScope   = "ACCESS_TOKEN_SCOPE_INSUFFICIENT"
	infoRate    = "RATE_LIMIT_EXCEEDED"
	infoDenied  = "IAM_PERMISSION_DENIED"
	infoProject = "USER_PROJECT_DENIED"
)

// htmlPage returns the error page of Google's front end and the metadata server.
func htmlPage(status int, title, text string) string {
	return "<!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n  <title>Error " +
		strconv.Itoa(status) + " (" + title + ")!!1</title>\n  <p><b>" +
		strconv.Itoa(status) + ".</b> <ins>That’s an error.</ins>\n  <p>" + text + "  <ins>That’s all we know.</ins>\n"
}

// page returns the error format of services that answer in HTML. These are the metadata server and
// Google's front end, which answers requests for unknown paths. Injected failures have the messages
// that Google's APIs use.
func page() service.Protocol {
	p := rpc()
	p.Refuse = func(_ *service.Request, e *service.Refusal) service.Answer {
		return service.Whole(e.Status, "text/html; charset=UTF-8", []byte(htmlPage(e.Status, http.StatusText(e.Status), e.Message)))
	}
	p.Broken = service.Whole(http.StatusOK, "text/html; charset=UTF-8",
		[]byte("<!DOCTYPE html>\n<html lang=en>\n  <title>Sign in to the network</title>\n  <form action=\"/log"))
	return p
}

func notFound() *service.Refusal {
	return service.Refuse(http.StatusNotFound, "NotFound", "The requested URL was not found on this server.").
		Because("the local cloud has nothing at this path")
}

// maxAPIBody is the maximum size of a request to an API, in bytes.
const maxAPIBody = 1 << 20

// readBody reads the whole body of an API request.
func readBody(r *service.Request) ([]byte, *service.Refusal) {
	body, err := r.ReadBody(maxAPIBody)
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, service.Refuse(http.StatusRequestEntityTooLarge, codeInvalid, "Request payload size exceeds the limit.")
	}
	return nil, service.Refuse(http.StatusBadRequest, codeInvalid, "The request body could not be read.")
}
