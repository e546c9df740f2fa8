package gcp

import (
	"encoding/xml"
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Codes of Cloud Storage's refusals: reasons of the JSON API, which the XML API words otherwise.
const (
	storageForbidden = "forbidden"
	storageBadToken  = "authError"
	storageNotFound  = "notFound"
	storageNoBucket  = "NoSuchBucket"
	storageRate      = "rateLimitExceeded"
	storageBackend   = "backendError"
)

// storageJSON is the JSON API's protocol. Source: Cloud Storage JSON API, "HTTP status and error codes for JSON".
type storageJSON struct{}

func (storageJSON) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	domain := "global"
	switch {
	case e.code == storageRate:
		domain = "usageLimits"
	case e.code == storageNoBucket:
		e.code = storageNotFound
	case e.code == storageForbidden && e.status == http.StatusUnauthorized:
		e.code = "required"
	}
	e.note(call)
	type one struct {
		Message      string `json:"message"`
		Domain       string `json:"domain"`
		Reason       string `json:"reason"`
		LocationType string `json:"locationType,omitempty"`
		Location     string `json:"location,omitempty"`
	}
	detail := one{Message: e.message, Domain: domain, Reason: e.code}
	if e.status == http.StatusUnauthorized {
		detail.LocationType, detail.Location = "header", "Authorization"
		w.Header().Set("Www-Authenticate", `Bearer realm="https://accounts.google.com/"`)
	}
	writeJSON(w, e.status, jsonType, map[string]any{"error": struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Errors  []one  `json:"errors"`
	}{e.status, e.message, []one{detail}}})
}

func (storageJSON) faulted(kind fault.Kind) *apiError {
	switch kind {
	case fault.Throttle:
		return refused(http.StatusTooManyRequests, storageRate, saysExhausted)
	case fault.Unavailable:
		return refused(http.StatusServiceUnavailable, storageBackend, saysUnavailable)
	default:
		return refused(http.StatusInternalServerError, storageBackend, saysInternal)
	}
}

func (storageJSON) broken() (contentType, body string) {
	return jsonType, "{\n  \"kind\": \"storage#objects\",\n  \"items\": [\n    {\n      \"na"
}

// storageXML is the XML API's protocol. Source: Cloud Storage XML API, "HTTP status and error codes for XML".
type storageXML struct{}

type xmlError struct {
	XMLName xml.Name `xml:"Error"`
	Code    string   `xml:"Code"`
	Message string   `xml:"Message"`
	Details string   `xml:"Details,omitempty"`
}

func (storageXML) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	body := xmlError{Code: e.code, Message: e.message}
	switch e.code {
	case storageForbidden: // who may not is always told so, never asked who it is
		e.status, body.Code, body.Message, body.Details = http.StatusForbidden, "AccessDenied", "Access denied.", e.message
	case storageBadToken:
		body.Code, body.Message = "AuthenticationRequired", "Authentication required."
	case storageNotFound:
		e.status, body.Code, body.Message = http.StatusBadRequest, "InvalidArgument", "Invalid argument."
	}
	e.code = body.Code
	e.note(call)
	wire.Write(w, e.status, "application/xml; charset=UTF-8", append([]byte("<?xml version='1.0' encoding='UTF-8'?>"), wire.Must(xml.Marshal(body))...))
}

func (storageXML) faulted(kind fault.Kind) *apiError {
	switch kind {
	case fault.Throttle:
		return refused(http.StatusTooManyRequests, "SlowDown", "Please reduce your request rate.")
	case fault.Unavailable:
		return refused(http.StatusServiceUnavailable, "ServiceUnavailable", saysUnavailable)
	default:
		return refused(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
	}
}

func (storageXML) broken() (contentType, body string) {
	return "application/xml; charset=UTF-8", "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'><Na"
}
