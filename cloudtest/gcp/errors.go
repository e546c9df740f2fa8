package gcp

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// apiError is a refusal as Google Cloud words it.
type apiError struct {
	status int
	// code is google.rpc.Code's name, or the API's own: OAuth's, the registry's, Cloud Storage's.
	code    string
	message string
	// info is the reason of google.rpc.ErrorInfo, with its metadata; empty for none.
	info     string
	metadata map[string]string
	// frontEnd says that Google's front end answers, not the API behind it: in google.rpc.Status whatever the API speaks.
	frontEnd bool
	// reason is for the journal only; it may say what Google does not.
	reason string
}

func refused(status int, code, message string) *apiError {
	return &apiError{status: status, code: code, message: message, reason: message}
}

func (e *apiError) because(reason string) *apiError {
	e.reason = reason
	return e
}

// detail sets ErrorInfo; pairs are its metadata.
func (e *apiError) detail(info string, pairs ...string) *apiError {
	e.info, e.metadata = info, map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		e.metadata[pairs[i]] = pairs[i+1]
	}
	return e
}

// note writes the refusal into the journal's call.
func (e *apiError) note(call *journal.Call) { call.Code, call.Reason = e.code, e.reason }

// protocol is how an API puts its answers.
type protocol interface {
	// refuse writes an error answer and notes it in call, under the code that the caller sees.
	refuse(w http.ResponseWriter, call *journal.Call, e *apiError)
	// faulted is the service's own answer to an injected fault: InternalFailure, Unavailable or Throttle.
	faulted(kind fault.Kind) *apiError
	// broken is the beginning of a granted answer, cut off.
	broken() (contentType, body string)
}

const jsonType = "application/json; charset=UTF-8"

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	wire.Write(w, status, contentType, append(wire.Must(json.MarshalIndent(body, "", "  ")), '\n'))
}

// oauth is the protocol of STS. Source: RFC 6749 §5.2, RFC 8693 §2.2.2.
type oauth struct{}

func (oauth) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	if e.frontEnd {
		rpc{}.refuse(w, call, e)
		return
	}
	e.note(call)
	wire.Write(w, e.status, jsonType, wire.Must(json.Marshal(struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{e.code, e.message})))
}

func (oauth) faulted(kind fault.Kind) *apiError {
	e := rpc{}.faulted(kind)
	e.frontEnd = true
	return e
}

func (oauth) broken() (contentType, body string) { return jsonType, `{"access_token":"ya29.d.` }

// rpc is the JSON of Google's APIs. Source: API design guide (AIP-193), google.rpc.Status.
type rpc struct{}

// errorInfo is google.rpc.ErrorInfo.
type errorInfo struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (rpc) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	e.note(call)
	if e.status == http.StatusUnauthorized {
		challenge := `Bearer realm="https://accounts.google.com/"`
		if e.info != infoMissing {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("Www-Authenticate", challenge)
	}
	type status struct {
		Code    int         `json:"code"`
		Message string      `json:"message"`
		Status  string      `json:"status"`
		Details []errorInfo `json:"details,omitempty"`
	}
	s := status{Code: e.status, Message: e.message, Status: e.code}
	if e.info != "" {
		domain := "googleapis.com"
		if e.info == infoDenied {
			domain = "iam.googleapis.com"
		}
		s.Details = []errorInfo{{Type: "type.googleapis.com/google.rpc.ErrorInfo", Reason: e.info, Domain: domain, Metadata: e.metadata}}
	}
	writeJSON(w, e.status, jsonType, map[string]status{"error": s})
}

func (rpc) faulted(kind fault.Kind) *apiError {
	switch kind {
	case fault.Throttle:
		return refused(http.StatusTooManyRequests, codeExhausted, saysExhausted).detail(infoRate)
	case fault.Unavailable:
		return refused(http.StatusServiceUnavailable, codeUnavailable, saysUnavailable)
	default:
		return refused(http.StatusInternalServerError, codeInternal, saysInternal)
	}
}

func (rpc) broken() (contentType, body string) { return jsonType, "{\n  \"accessToken\": \"ya29.c." }

// Codes of google.rpc.Code that are used in several places.
const (
	codeUnauthenticated = "UNAUTHENTICATED"
	codeDenied          = "PERMISSION_DENIED"
	codeInvalid         = "INVALID_ARGUMENT"
	codeNotFound        = "NOT_FOUND"
	codeExhausted       = "RESOURCE_EXHAUSTED"
	codeUnavailable     = "UNAVAILABLE"
	codeInternal        = "INTERNAL"
)

// What Google says when it fails. Source: Google Cloud APIs, "Errors: handling errors".
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
)

// htmlPage is how Google's front end and the metadata server answer what they do not have.
func htmlPage(status int, title, text string) string {
	return "<!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n  <title>Error " + strconv.Itoa(status) + " (" + title + ")!!1</title>\n  <p><b>" +
		strconv.Itoa(status) + ".</b> <ins>That’s an error.</ins>\n  <p>" + text + "  <ins>That’s all we know.</ins>\n"
}

// page is the protocol of what answers in HTML: the metadata server, and the front end for paths that no API has.
type page struct{}

func (page) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	e.note(call)
	wire.Write(w, e.status, "text/html; charset=UTF-8", []byte(htmlPage(e.status, http.StatusText(e.status), e.message)))
}

func (page) faulted(kind fault.Kind) *apiError { return rpc{}.faulted(kind) } // in its words

func (page) broken() (contentType, body string) {
	return "text/html; charset=UTF-8", "<!DOCTYPE html>\n<html lang=en>\n  <title>Sign in to the network</title>\n  <form action=\"/log"
}

func notFound() *apiError {
	return refused(http.StatusNotFound, "NotFound", "The requested URL was not found on this server.").because("the local cloud has nothing at this path")
}
