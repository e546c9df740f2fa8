package azure

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// aadsts returns a refusal with Entra ID's error code AADSTS<number>. Its Detail is OAuth's error
// code. Source: Microsoft Learn, "Microsoft Entra authentication and authorization error codes".
// That page lacks some codes. Their source is answers of Entra ID, published by users of
// Azure/azure-workload-identity, Azure/login and MSAL.
func aadsts(number, status int, oauth, format string, args ...any) *service.Refusal {
	return service.Refuse(status, "AADSTS"+strconv.Itoa(number), fmt.Sprintf(format, args...)).With(oauth)
}

func badRequest(number int, format string, args ...any) *service.Refusal {
	return aadsts(number, http.StatusBadRequest, "invalid_request", format, args...)
}

// badClient returns a refusal with OAuth's error code invalid_client. Source: RFC 6749 §5.2.
func badClient(number int, format string, args ...any) *service.Refusal {
	return aadsts(number, http.StatusUnauthorized, "invalid_client", format, args...)
}

var correlationPattern = regexp.MustCompile(`\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\z`)

type entraError struct {
	Error            string `json:"error"`
	ErrorDescription string `json:"error_description"`
	ErrorCodes       []int  `json:"error_codes"`
	Timestamp        string `json:"timestamp"`
	TraceID          string `json:"trace_id"`
	CorrelationID    string `json:"correlation_id"`
	ErrorURI         string `json:"error_uri"`
}

// entraProtocol returns the error format of Entra ID in an environment.
func entraProtocol(e *Environment) service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, no *service.Refusal) service.Answer { return e.refuse(r, no) },
		Failure: aadsts(50000, http.StatusInternalServerError, "server_error",
			"There was an error issuing a token or an issue with our sign-in service."),
		Unavailable: aadsts(90033, http.StatusServiceUnavailable,
			"temporarily_unavailable", "A transient error has occurred. Please try again."),
		Throttled: service.Refuse(http.StatusTooManyRequests, "TooManyRequests", "Too Many Requests"),
		Broken:    service.Whole(http.StatusOK, jsonType, []byte(`{"token_type":"Bearer","expires_in":3599,"access_tok`)),
	}
}

func (e *Environment) refuse(r *service.Request, no *service.Refusal) service.Answer {
	r.Reply.Set("Cache-Control", "no-store, no-cache")
	r.Reply.Set("Pragma", "no-cache")
	// Azure's front end answers throttled requests, in plain text.
	if no.Status == http.StatusTooManyRequests {
		return service.Whole(no.Status, "text/plain; charset=utf-8", []byte(no.Message))
	}
	correlation := strings.ToLower(r.Header.Get("Client-Request-Id")) // the client's request ID
	if !correlationPattern.MatchString(correlation) {
		correlation = wire.UUID()
	}
	number, _ := strconv.Atoi(strings.TrimPrefix(no.Code, "AADSTS"))
	oauth, _ := no.Detail.(string)
	trace, timestamp := wire.UUID(), r.Now.UTC().Format("2006-01-02 15:04:05Z")
	r.Reply.Set("X-Ms-Request-Id", trace)
	return writeJSON(no.Status, entraError{
		Error: oauth,
		ErrorDescription: no.Code + ": " + no.Message + " Trace ID: " + trace +
			" Correlation ID: " + correlation + " Timestamp: " + timestamp,
		ErrorCodes: []int{number}, Timestamp: timestamp, TraceID: trace, CorrelationID: correlation,
		ErrorURI: "https://" + e.authority() + "/error?code=" + strconv.Itoa(number),
	})
}
