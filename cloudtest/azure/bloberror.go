package azure

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// blobMessages returns the messages of error codes. Sources: Microsoft Learn, "Common REST API
// error codes" and "Blob Storage error codes".
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

func blobRefusal(status int, code string) *service.Refusal {
	return service.Refuse(status, code, blobMessages()[code])
}

type blobError struct {
	XMLName xml.Name `xml:"Error"`
	Code    string   `xml:"Code"`
	Message string   `xml:"Message"`
	Detail  string   `xml:"AuthenticationErrorDetail,omitempty"`
}

// blobProtocol returns the error format of blob storage. A refusal's Detail becomes
// AuthenticationErrorDetail. Source: Microsoft Learn, "Status and error codes" of Azure Storage.
func blobProtocol() service.Protocol {
	const head = "\uFEFF" + `<?xml version="1.0" encoding="utf-8"?>`
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			id := wire.UUID()
			body := blobError{Code: e.Code, Message: e.Message + "\nRequestId:" + id +
				"\nTime:" + time.Now().UTC().Format("2006-01-02T15:04:05.0000000Z")}
			body.Detail, _ = e.Detail.(string)
			// Azure does not escape line breaks.
			out := bytes.ReplaceAll(wire.Must(xml.Marshal(body)), []byte("&#xA;"), []byte("\n"))
			r.Reply.Set("Server", "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0")
			r.Reply.Set("X-Ms-Request-Id", id)
			r.Reply.Set("X-Ms-Error-Code", e.Code)
			return service.Whole(e.Status, "application/xml", append([]byte(head), out...))
		},
		Failure:     blobRefusal(http.StatusInternalServerError, "InternalError"),
		Unavailable: blobRefusal(http.StatusServiceUnavailable, "ServerBusy"),
		Throttled:   blobRefusal(http.StatusServiceUnavailable, "ServerBusy"),
		Broken:      service.Whole(http.StatusOK, "application/xml", []byte(head+`<EnumerationResults ServiceEndpoint="https://`)),
	}
}
