package gcp

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
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
	// broken is the beginning of a granted answer, cut off.
	broken() (contentType, body string)
}

const jsonType = "application/json; charset=UTF-8"

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	out, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		panic("gcp: an answer cannot fail to marshal: " + err.Error())
	}
	out = append(out, '\n')
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	w.WriteHeader(status)
	_, _ = w.Write(out)
}

// oauth is the protocol of STS. Source: RFC 6749 §5.2, RFC 8693 §2.2.2.
type oauth struct{}

func (oauth) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	switch e.status {
	case http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusTooManyRequests: // not OAuth's: the front end answers
		rpc{}.refuse(w, call, e)
		return
	}
	e.note(call)
	out, err := json.Marshal(struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{e.code, e.message})
	if err != nil {
		panic("gcp: an answer cannot fail to marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(e.status)
	_, _ = w.Write(out)
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
	w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	w.WriteHeader(e.status)
	_, _ = w.Write([]byte(htmlPage(e.status, http.StatusText(e.status), e.message)))
}

func (page) broken() (contentType, body string) {
	return "text/html; charset=UTF-8", "<!DOCTYPE html>\n<html lang=en>\n  <title>Sign in to the network</title>\n  <form action=\"/log"
}

func notFound() *apiError {
	return refused(http.StatusNotFound, "NotFound", "The requested URL was not found on this server.").because("the local cloud has nothing at this path")
}
