package gcp

import (
	"encoding/xml"
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Codes of Cloud Storage's refusals. NoSuchBucket is a code of the XML API. The other codes are
// values of the field reason in the JSON API's errors.
//
// Handlers use the first four codes in requests to both APIs. If the request's API does not have
// the code, refuseStorageJSON or refuseStorageXML replaces it by a code that the API has. Only the
// error format of the JSON API uses storageRate and storageBackend.
const (
	storageForbidden = "forbidden"
	storageBadToken  = "authError"
	storageNotFound  = "notFound"
	storageNoBucket  = "NoSuchBucket"
	storageRate      = "rateLimitExceeded"
	storageBackend   = "backendError"
)

// storageJSON returns the JSON API's error format. Source: Cloud Storage JSON API, "HTTP status and
// error codes for JSON".
func storageJSON() service.Protocol {
	return service.Protocol{
		Refuse:      refuseStorageJSON,
		Failure:     service.Refuse(http.StatusInternalServerError, storageBackend, saysInternal),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, storageBackend, saysUnavailable),
		Throttled:   service.Refuse(http.StatusTooManyRequests, storageRate, saysExhausted),
		Broken: service.Whole(http.StatusOK, jsonType,
			[]byte("{\n  \"kind\": \"storage#objects\",\n  \"items\": [\n    {\n      \"na")),
	}
}

func refuseStorageJSON(r *service.Request, e *service.Refusal) service.Answer {
	domain := "global"
	switch {
	case e.Code == storageRate:
		domain = "usageLimits"
	case e.Code == storageNoBucket:
		e.Code = storageNotFound
	case e.Code == storageForbidden && e.Status == http.StatusUnauthorized:
		e.Code = "required"
	}
	type one struct {
		Message      string `json:"message"`
		Domain       string `json:"domain"`
		Reason       string `json:"reason"`
		LocationType string `json:"locationType,omitempty"`
		Location     string `json:"location,omitempty"`
	}
	detail := one{Message: e.Message, Domain: domain, Reason: e.Code}
	if e.Status == http.StatusUnauthorized {
		detail.LocationType, detail.Location = "header", "Authorization"
		r.Reply.Set("Www-Authenticate", `Bearer realm="https://accounts.google.com/"`)
	}
	return writeJSON(jsonType, e.Status, map[string]any{"error": struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Errors  []one  `json:"errors"`
	}{e.Status, e.Message, []one{detail}}})
}

// storageXML returns the XML API's error format. Source: Cloud Storage XML API, "HTTP status and
// error codes for XML".
func storageXML() service.Protocol {
	return service.Protocol{
		Refuse:      refuseStorageXML,
		Failure:     service.Refuse(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again."),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", saysUnavailable),
		Throttled:   service.Refuse(http.StatusTooManyRequests, "SlowDown", "Please reduce your request rate."),
		Broken: service.Whole(http.StatusOK, storageXMLType,
			[]byte(xmlHead+"<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'><Na")),
	}
}

const (
	storageXMLType = "application/xml; charset=UTF-8"
	xmlHead        = "<?xml version='1.0' encoding='UTF-8'?>"
)

type xmlError struct {
	XMLName xml.Name `xml:"Error"`
	Code    string   `xml:"Code"`
	Message string   `xml:"Message"`
	Details string   `xml:"Details,omitempty"`
}

func refuseStorageXML(_ *service.Request, e *service.Refusal) service.Answer {
	body := xmlError{Code: e.Code, Message: e.Message}
	switch e.Code {
	case storageForbidden: // the XML API has no 401 for a caller without permission
		e.Status, body.Code, body.Message, body.Details = http.StatusForbidden, "AccessDenied", "Access denied.", e.Message
	case storageBadToken:
		body.Code, body.Message = "AuthenticationRequired", "Authentication required."
	case storageNotFound:
		e.Status, body.Code, body.Message = http.StatusBadRequest, "InvalidArgument", "Invalid argument."
	}
	e.Code = body.Code
	return service.Whole(e.Status, storageXMLType, append([]byte(xmlHead), wire.Must(xml.Marshal(body))...))
}
