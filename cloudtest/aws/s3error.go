package aws

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
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
	switch e.code {
	case "Throttling":
		e.status, e.code, e.message = http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate."
	case "InternalFailure":
		e.code, e.message = "InternalError", "We encountered an internal error. Please try again."
	case "ServiceUnavailable":
		e.message = "Service is unable to handle request."
	}
	e.note(call)
	w.Header().Del("Content-Length") // a data plane may have set it for another answer
	writeRestXML(w, e.status, restError{
		Code: e.code, Message: e.message, Details: e.details,
		RequestID: w.Header().Get("X-Amz-Request-Id"), HostID: w.Header().Get("X-Amz-Id-2"),
	})
}

func (restXML) broken() (contentType, body string) {
	return "application/xml", xml.Header + `<ListBucketResult xmlns="` + s3Namespace + `"><Na`
}

func writeRestXML(w http.ResponseWriter, status int, body any) {
	out, err := xml.Marshal(body)
	if err != nil {
		panic("aws: an answer cannot fail to marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write(append([]byte(xml.Header), out...)) // encoding/xml escapes what a caller sent
}

// markS3 gives an answer its IDs.
func markS3(w http.ResponseWriter) {
	w.Header().Set("X-Amz-Request-Id", strings.ToUpper(strings.ReplaceAll(requestID(), "-", "")[:16]))
	w.Header().Set("X-Amz-Id-2", base64.StdEncoding.EncodeToString(random(56)))
}
