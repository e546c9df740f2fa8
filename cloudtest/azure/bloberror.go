package azure

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// blobProtocol is how blob storage answers. Source: Microsoft Learn, "Status and error codes" of Azure Storage.
type blobProtocol struct{}

// blobMessages are the messages of error codes. Sources: Microsoft Learn, "Common REST API error codes" and "Blob Storage error codes".
func blobMessages() map[string]string {
	const seeHeader = "Server failed to authenticate the request. Please refer to the information in the www-authenticate header."
	return map[string]string{
		"AuthenticationFailed":               "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
		"AuthorizationPermissionMismatch":    "This request is not authorized to perform this operation using this permission.",
		"CannotVerifyCopySource":             "This request is not authorized to perform this operation using this permission.",
		"InternalError":                      "Server encountered an internal error. Please try again after some time.",
		"InvalidAuthenticationInfo":          seeHeader,
		"InvalidHeaderValue":                 "The value for one of the HTTP headers is not in the correct format.",
		"InvalidQueryParameterValue":         "Value for one of the query parameters specified in the request URI is invalid.",
		"InvalidUri":                         "The requested URI does not represent any resource on the server.",
		"KeyBasedAuthenticationNotPermitted": "Key based authentication is not permitted on this storage account.",
		"NoAuthenticationInformation":        seeHeader,
		"PublicAccessNotPermitted":           "Public access is not permitted on this storage account.",
		"ServerBusy":                         "The server is busy.",
		"UnsupportedQueryParameter":          "One of the query parameters specified in the request URI is not supported.",
		"UnsupportedHttpVerb":                "The resource doesn't support specified Http Verb.",
	}
}

func blobRefusal(status int, code string) *refusal {
	return &refusal{status: status, code: code, message: blobMessages()[code]}
}

type blobError struct {
	XMLName xml.Name `xml:"Error"`
	Code    string   `xml:"Code"`
	Message string   `xml:"Message"`
	Detail  string   `xml:"AuthenticationErrorDetail,omitempty"`
}

func (blobProtocol) refuse(w http.ResponseWriter, call *journal.Call, e *refusal) {
	e.note(call)
	id := wire.UUID()
	body := blobError{Code: e.code, Message: e.message + "\nRequestId:" + id + "\nTime:" + time.Now().UTC().Format("2006-01-02T15:04:05.0000000Z")}
	body.Detail, _ = e.detail.(string)
	out := bytes.ReplaceAll(wire.Must(xml.Marshal(body)), []byte("&#xA;"), []byte("\n")) // as Azure writes line breaks
	w.Header().Set("Server", "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0")
	w.Header().Set("X-Ms-Request-Id", id)
	w.Header().Set("X-Ms-Error-Code", e.code)
	wire.Write(w, e.status, "application/xml", append([]byte("\uFEFF"+`<?xml version="1.0" encoding="utf-8"?>`), out...))
}

func (blobProtocol) faulted(kind fault.Kind) *refusal {
	if kind == fault.InternalFailure {
		return blobRefusal(http.StatusInternalServerError, "InternalError")
	}
	return blobRefusal(http.StatusServiceUnavailable, "ServerBusy") // throttling too
}

func (blobProtocol) broken() (contentType, body string) {
	return "application/xml", "\uFEFF" + `<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="https://`
}
