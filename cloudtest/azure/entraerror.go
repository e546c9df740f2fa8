package azure

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// aadsts is a refusal of Entra ID by number. Sources: Microsoft Learn, "Microsoft Entra authentication and authorization error codes", and for what that
// leaves out, answers that users of Azure/azure-workload-identity, Azure/login and MSAL made public.
func aadsts(number, status int, oauth, format string, args ...any) *refusal {
	return &refusal{status: status, code: "AADSTS" + strconv.Itoa(number), oauth: oauth, message: fmt.Sprintf(format, args...)}
}

func badRequest(number int, format string, args ...any) *refusal {
	return aadsts(number, http.StatusBadRequest, "invalid_request", format, args...)
}

// badClient is a refusal of who the caller says to be. Source: RFC 6749 §5.2, invalid_client.
func badClient(number int, format string, args ...any) *refusal {
	return aadsts(number, http.StatusUnauthorized, "invalid_client", format, args...)
}

// entraProtocol is how Entra ID answers a request.
type entraProtocol struct {
	environment *Environment
	correlation string // what the client calls the request
	now         func() time.Time
}

var correlationPattern = regexp.MustCompile(`(?i)\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\z`)

func newEntraProtocol(e *Environment, r *http.Request) entraProtocol {
	correlation := r.Header.Get("Client-Request-Id")
	if !correlationPattern.MatchString(correlation) {
		correlation = wire.UUID()
	}
	return entraProtocol{environment: e, correlation: strings.ToLower(correlation), now: time.Now}
}

type entraError struct {
	Error            string `json:"error"`
	ErrorDescription string `json:"error_description"`
	ErrorCodes       []int  `json:"error_codes"`
	Timestamp        string `json:"timestamp"`
	TraceID          string `json:"trace_id"`
	CorrelationID    string `json:"correlation_id"`
	ErrorURI         string `json:"error_uri"`
}

func (p entraProtocol) refuse(w http.ResponseWriter, call *journal.Call, e *refusal) {
	e.note(call)
	w.Header().Set("Cache-Control", "no-store, no-cache")
	w.Header().Set("Pragma", "no-cache")
	if e.status == http.StatusTooManyRequests { // its front door answers, not the token service
		wire.Write(w, e.status, "text/plain; charset=utf-8", []byte(e.message))
		return
	}
	number, _ := strconv.Atoi(strings.TrimPrefix(e.code, "AADSTS"))
	trace, timestamp := wire.UUID(), p.now().UTC().Format("2006-01-02 15:04:05Z")
	w.Header().Set("X-Ms-Request-Id", trace)
	writeJSON(w, e.status, entraError{
		Error:            e.oauth,
		ErrorDescription: e.code + ": " + e.message + " Trace ID: " + trace + " Correlation ID: " + p.correlation + " Timestamp: " + timestamp,
		ErrorCodes:       []int{number}, Timestamp: timestamp, TraceID: trace, CorrelationID: p.correlation,
		ErrorURI: "https://" + p.environment.authority() + "/error?code=" + strconv.Itoa(number),
	})
}

func (entraProtocol) faulted(kind fault.Kind) *refusal {
	switch kind {
	case fault.Throttle:
		return &refusal{status: http.StatusTooManyRequests, code: "TooManyRequests", message: "Too Many Requests"}
	case fault.Unavailable:
		return aadsts(90033, http.StatusServiceUnavailable, "temporarily_unavailable", "A transient error has occurred. Please try again.")
	default:
		return aadsts(50000, http.StatusInternalServerError, "server_error", "There was an error issuing a token or an issue with our sign-in service.")
	}
}

func (entraProtocol) broken() (contentType, body string) {
	return "application/json; charset=utf-8", `{"token_type":"Bearer","expires_in":3599,"access_tok`
}
