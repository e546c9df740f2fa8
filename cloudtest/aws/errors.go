package aws

import (
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"net/http"
	"strconv"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
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

// requestID makes a random UUID, as AWS marks each answer.
func requestID() string {
	b := random(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// protocol is how a service puts its answers.
type protocol interface {
	// refuse writes an error answer and notes it in call, under the code that the caller sees.
	refuse(w http.ResponseWriter, call *journal.Call, e *apiError)
	// broken is the beginning of a granted answer, cut off.
	broken() (contentType, body string)
}

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
	body := xmlError{Xmlns: stsNamespace, RequestID: requestID()}
	body.Error.Type = "Sender"
	if e.status >= 500 {
		body.Error.Type = "Receiver"
	}
	body.Error.Code, body.Error.Message = e.code, e.message
	writeXML(w, e.status, body.RequestID, body)
}

func (queryXML) broken() (contentType, body string) {
	return "text/xml", `<AssumeRoleWithWebIdentityResponse xmlns="` + stsNamespace + `"><AssumeRoleWithWebIdentityResult><Cred`
}

func writeXML(w http.ResponseWriter, status int, id string, body any) {
	out, err := xml.MarshalIndent(body, "", "  ")
	if err != nil {
		panic("aws: an answer cannot fail to marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("X-Amzn-Requestid", id)
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	w.WriteHeader(status)
	_, _ = w.Write(out) //nolint:gosec // encoding/xml escapes what a caller sent.
}

// json11 is the AWS JSON 1.1 protocol of ECR. Source: Smithy, "AWS JSON 1.1 protocol".
type json11 struct{}

// jsonCodes translates the codes that every service shares. All of them but server errors are HTTP 400.
func jsonCodes() map[string]string {
	return map[string]string{
		"MissingAuthenticationToken": "MissingAuthenticationTokenException",
		"IncompleteSignature":        "IncompleteSignatureException",
		"SignatureDoesNotMatch":      "InvalidSignatureException",
		"InvalidClientTokenId":       "UnrecognizedClientException",
		"ExpiredToken":               "ExpiredTokenException",
		"AccessDenied":               "AccessDeniedException",
		"Throttling":                 "ThrottlingException",
		"InternalFailure":            "ServerException",
		"ServiceUnavailable":         "ServiceUnavailableException",
	}
}

func (json11) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	if code, ok := jsonCodes()[e.code]; ok {
		e.code = code
		if e.status < 500 {
			e.status = http.StatusBadRequest
		}
	}
	if e.code == "MissingAuthenticationTokenException" {
		e.message = "Missing Authentication Token" // worded apart from STS's
	}
	e.note(call)
	writeJSON(w, e.status, "application/x-amz-json-1.1", map[string]string{"__type": e.code, "message": e.message})
}

func (json11) broken() (contentType, body string) {
	return "application/x-amz-json-1.1", `{"authorizationData":[{"authorizationTok`
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	out, err := json.Marshal(body)
	if err != nil {
		panic("aws: an answer cannot fail to marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Amzn-Requestid", requestID())
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	w.WriteHeader(status)
	_, _ = w.Write(out)
}

// distribution is the protocol of registries. Source: OCI Distribution Specification v1.1, "Error Codes".
type distribution struct{}

func (distribution) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	switch e.code {
	case "Throttling":
		e.status, e.code = http.StatusTooManyRequests, "TOOMANYREQUESTS"
	case "InternalFailure":
		e.code = "UNKNOWN"
	case "ServiceUnavailable":
		e.code = "UNAVAILABLE"
	}
	e.note(call)
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	type one struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	writeJSON(w, e.status, "application/json; charset=utf-8", map[string][]one{"errors": {{e.code, e.message}}})
}

func (distribution) broken() (contentType, body string) {
	return "application/vnd.oci.image.manifest.v1+json", `{"schemaVersion":2,"mediaType":"application/vnd.oci.im`
}
