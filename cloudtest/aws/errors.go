package aws

import (
	"encoding/json"
	"encoding/xml"
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// apiError is a refusal as AWS words it. Code is the Query protocol's; the JSON protocol has names of its own for some.
type apiError struct {
	status  int
	code    string
	message string
	reason  string // for the journal only; may say what AWS does not
	details []detail
}

func refused(status int, code, message string) *apiError {
	return &apiError{status: status, code: code, message: message, reason: message}
}

func (e *apiError) because(reason string) *apiError {
	e.reason = reason
	return e
}

// note writes the refusal into the journal's call.
func (e *apiError) note(call *journal.Call) {
	call.Code, call.Reason = e.code, e.reason
}

// protocol is how a service puts its answers.
type protocol interface {
	// refuse writes an error answer and notes it in call, under the code that the caller sees.
	refuse(w http.ResponseWriter, call *journal.Call, e *apiError)
	// faulted is the service's own answer to an injected fault: InternalFailure, Unavailable or Throttle.
	faulted(kind fault.Kind) *apiError
	// broken is the beginning of a granted answer, cut off.
	broken() (contentType, body string)
}

// What AWS says when it fails. Source: AWS STS API Reference, "Common Error Types".
const (
	rateExceeded     = "Rate exceeded"
	temporaryFailure = "The request has failed due to a temporary failure of the server."
	unknownFailure   = "The request processing has failed because of an unknown error, exception or failure."
)

// queryXML is the AWS Query protocol of STS. Source: Smithy, "AWS query protocol".
type queryXML struct{}

const stsNamespace = "https://sts.amazonaws.com/doc/2011-06-15/"

type xmlError struct {
	XMLName xml.Name `xml:"ErrorResponse"`
	Xmlns   string   `xml:"xmlns,attr"`
	Error   struct {
		Type, Code, Message string
	}
	RequestID string `xml:"RequestId"`
}

func (queryXML) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	e.note(call)
	body := xmlError{Xmlns: stsNamespace, RequestID: wire.UUID()}
	body.Error.Type = "Sender"
	if e.status >= 500 {
		body.Error.Type = "Receiver"
	}
	body.Error.Code, body.Error.Message = e.code, e.message
	writeXML(w, e.status, body.RequestID, body)
}

func (queryXML) faulted(kind fault.Kind) *apiError {
	switch kind {
	case fault.Throttle:
		return refused(http.StatusBadRequest, "Throttling", rateExceeded)
	case fault.Unavailable:
		return refused(http.StatusServiceUnavailable, "ServiceUnavailable", temporaryFailure)
	default:
		return refused(http.StatusInternalServerError, "InternalFailure", unknownFailure)
	}
}

func (queryXML) broken() (contentType, body string) {
	return "text/xml", `<AssumeRoleWithWebIdentityResponse xmlns="` + stsNamespace + `"><AssumeRoleWithWebIdentityResult><Cred`
}

func writeXML(w http.ResponseWriter, status int, id string, body any) {
	w.Header().Set("X-Amzn-Requestid", id)
	wire.Write(w, status, "text/xml", wire.Must(xml.MarshalIndent(body, "", "  ")))
}

// json11 is the AWS JSON 1.1 protocol of ECR. Source: Smithy, "AWS JSON 1.1 protocol".
type json11 struct{}

// jsonCodes are the protocol's names for refusals of a caller that every API shares. All of them are HTTP 400.
func jsonCodes() map[string]string {
	return map[string]string{
		"MissingAuthenticationToken": "MissingAuthenticationTokenException",
		"IncompleteSignature":        "IncompleteSignatureException",
		"SignatureDoesNotMatch":      "InvalidSignatureException",
		"InvalidClientTokenId":       "UnrecognizedClientException",
		"ExpiredToken":               "ExpiredTokenException",
		"AccessDenied":               "AccessDeniedException",
	}
}

func (json11) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	if code, ok := jsonCodes()[e.code]; ok {
		e.status, e.code = http.StatusBadRequest, code
	}
	if e.code == "MissingAuthenticationTokenException" {
		e.message = "Missing Authentication Token" // worded apart from STS's
	}
	e.note(call)
	writeJSON(w, e.status, "application/x-amz-json-1.1", map[string]string{"__type": e.code, "message": e.message})
}

func (json11) faulted(kind fault.Kind) *apiError {
	switch kind {
	case fault.Throttle:
		return refused(http.StatusBadRequest, "ThrottlingException", rateExceeded)
	case fault.Unavailable:
		return refused(http.StatusServiceUnavailable, "ServiceUnavailableException", temporaryFailure)
	default:
		return refused(http.StatusInternalServerError, "ServerException", unknownFailure)
	}
}

func (json11) broken() (contentType, body string) {
	return "application/x-amz-json-1.1", `{"authorizationData":[{"authorizationTok`
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("X-Amzn-Requestid", wire.UUID())
	wire.Write(w, status, contentType, wire.Must(json.Marshal(body)))
}

// distribution is the protocol of registries. Source: OCI Distribution Specification v1.1, "Error Codes".
type distribution struct{}

func (distribution) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	e.note(call)
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	type one struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	writeJSON(w, e.status, "application/json; charset=utf-8", map[string][]one{"errors": {{e.code, e.message}}})
}

func (distribution) faulted(kind fault.Kind) *apiError {
	switch kind {
	case fault.Throttle:
		return refused(http.StatusTooManyRequests, "TOOMANYREQUESTS", rateExceeded)
	case fault.Unavailable:
		return refused(http.StatusServiceUnavailable, "UNAVAILABLE", temporaryFailure)
	default:
		return refused(http.StatusInternalServerError, "UNKNOWN", unknownFailure)
	}
}

func (distribution) broken() (contentType, body string) {
	return "application/vnd.oci.image.manifest.v1+json", `{"schemaVersion":2,"mediaType":"application/vnd.oci.im`
}
