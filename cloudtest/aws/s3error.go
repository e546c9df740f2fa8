package aws

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// restXML is S3's protocol. Source: Amazon S3 API Reference, "Error responses".
type restXML struct{}

const s3Namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// detail is an element that S3 adds to an error.
type detail struct {
	XMLName xml.Name
	Value   string `xml:",chardata"`
}

// with adds an element to an error of S3.
func (e *apiError) with(name, value string) *apiError {
	e.details = append(e.details, detail{xml.Name{Local: name}, value})
	return e
}

type restError struct {
	XMLName       xml.Name `xml:"Error"`
	Code, Message string
	Details       []detail
	RequestID     string `xml:"RequestId"`
	HostID        string `xml:"HostId"`
}

func (restXML) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	e.note(call)
	writeRestXML(w, e.status, restError{
		Code: e.code, Message: e.message, Details: e.details,
		RequestID: w.Header().Get("X-Amz-Request-Id"), HostID: w.Header().Get("X-Amz-Id-2"),
	})
}

// faulted implements [protocol]. Source: Amazon S3 API Reference, "List of error codes".
func (restXML) faulted(kind fault.Kind) *apiError {
	switch kind {
	case fault.Throttle:
		return refused(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
	case fault.Unavailable:
		return refused(http.StatusServiceUnavailable, "ServiceUnavailable", "Service is unable to handle request.")
	default:
		return refused(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
	}
}

func (restXML) broken() (contentType, body string) {
	return "application/xml", xml.Header + `<ListBucketResult xmlns="` + s3Namespace + `"><Na`
}

func writeRestXML(w http.ResponseWriter, status int, body any) {
	wire.Write(w, status, "application/xml", append([]byte(xml.Header), wire.Must(xml.Marshal(body))...))
}

// markS3 gives an answer its IDs.
func markS3(w http.ResponseWriter) {
	w.Header().Set("X-Amz-Request-Id", strings.ToUpper(strings.ReplaceAll(wire.UUID(), "-", "")[:16]))
	w.Header().Set("X-Amz-Id-2", base64.StdEncoding.EncodeToString(wire.Random(56)))
}
