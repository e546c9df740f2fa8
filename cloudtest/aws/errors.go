package aws

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Messages of the errors that AWS causes, not the caller. Source: AWS STS API Reference, "Common
// Error Types".
const (
	rateExceeded     = "Rate exceeded"
	temporaryFailure = "The request has failed due to a temporary failure of the server."
	unknownFailure   = "The request processing has failed because of an unknown error, exception or failure."
)

type xmlError struct {
	XMLName xml.Name `xml:"ErrorResponse"`
	Xmlns   string   `xml:"xmlns,attr"`
	Error   struct {
		Type, Code, Message string
	}
	RequestID string `xml:"RequestId"`
}

// queryXML returns the AWS Query protocol of the API with the given XML namespace. Source: Smithy,
// "AWS query protocol".
func queryXML(namespace string) service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			body := xmlError{Xmlns: namespace, RequestID: wire.UUID()}
			body.Error.Type = "Sender"
			if e.Status >= 500 {
				body.Error.Type = "Receiver"
			}
			body.Error.Code, body.Error.Message = e.Code, e.Message
			return writeXML(r, e.Status, body.RequestID, body)
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "InternalFailure", unknownFailure),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", temporaryFailure),
		Throttled:   service.Refuse(http.StatusBadRequest, "Throttling", rateExceeded),
		Broken: service.Whole(http.StatusOK, "text/xml",
			[]byte(`<AssumeRoleWithWebIdentityResponse xmlns="`+namespace+`"><AssumeRoleWithWebIdentityResult><Cred`)),
	}
}

func writeXML(r *service.Request, status int, id string, body any) service.Answer {
	r.Reply.Set("X-Amzn-Requestid", id)
	return service.Whole(status, "text/xml", wire.Must(xml.MarshalIndent(body, "", "  ")))
}

// ec2Error is an error as EC2 writes it.
type ec2Error struct {
	XMLName   xml.Name `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

// ec2Refusals maps a refusal's code to EC2's status, code and message. If the message in the map is
// empty, EC2's message has two parts: first "You are not authorized to perform this operation.",
// then the refusal's own message.
func ec2Refusals() map[string]service.Refusal {
	const unproved = "AWS was not able to validate the provided access credentials"
	return map[string]service.Refusal{
		"SignatureDoesNotMatch": {Status: http.StatusUnauthorized, Code: "AuthFailure", Message: unproved},
		"InvalidClientTokenId":  {Status: http.StatusUnauthorized, Code: "AuthFailure", Message: unproved},
		"ExpiredToken":          {Status: http.StatusBadRequest, Code: "RequestExpired", Message: "Request has expired."},
		"AccessDenied":          {Status: http.StatusForbidden, Code: "UnauthorizedOperation"},
	}
}

// ec2XML returns the EC2 Query protocol of the API with the given XML namespace. Sources: Smithy,
// "AWS EC2 query protocol"; EC2 API Reference, "Error codes".
func ec2XML(namespace string) service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			if own, ok := ec2Refusals()[e.Code]; ok {
				e.Reason = cmp.Or(e.Reason, e.Message)
				e.Status, e.Code, e.Message = own.Status, own.Code, cmp.Or(own.Message,
					"You are not authorized to perform this operation. "+e.Message)
			}
			body := ec2Error{Code: e.Code, Message: e.Message, RequestID: wire.UUID()}
			return writeXML(r, e.Status, body.RequestID, body)
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "InternalError", "An internal error has occurred"),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "Unavailable", "The service is unavailable. Please try again shortly."),
		Throttled:   service.Refuse(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded."),
		Broken:      service.Whole(http.StatusOK, "text/xml", []byte(`<DescribeRegionsResponse xmlns="`+namespace+`"><regionInf`)),
	}
}

// jsonCodes maps a refusal's code to the code that the JSON protocol has for it. Each of these
// refusals gets the status 400.
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

const json11Type = "application/x-amz-json-1.1"

// json11 is the AWS JSON 1.1 protocol. Source: Smithy, "AWS JSON 1.1 protocol".
func json11() service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			if code, ok := jsonCodes()[e.Code]; ok {
				e.Status, e.Code = http.StatusBadRequest, code
			}
			if e.Code == "MissingAuthenticationTokenException" {
				// The services with this protocol have the text below. STS, which has another
				// protocol, has another text: "Request is missing Authentication Token".
				e.Message = "Missing Authentication Token"
			}
			return writeJSON(r, e.Status, json11Type, map[string]string{"__type": e.Code, "message": e.Message})
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "ServerException", unknownFailure),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "ServiceUnavailableException", temporaryFailure),
		Throttled:   service.Refuse(http.StatusBadRequest, "ThrottlingException", rateExceeded),
		Broken:      service.Whole(http.StatusOK, json11Type, []byte(`{"authorizationData":[{"authorizationTok`)),
	}
}

// kmsJSON is json11 with KMS's codes and messages. Source: KMS API Reference, "Common Error Types",
// and the errors of each operation.
func kmsJSON() service.Protocol {
	p := json11()
	p.Failure = service.Refuse(http.StatusInternalServerError, "KMSInternalException", unknownFailure)
	p.Unavailable = service.Refuse(http.StatusServiceUnavailable, "DependencyTimeoutException", temporaryFailure)
	p.Throttled = service.Refuse(http.StatusBadRequest, "ThrottlingException",
		"You have exceeded the rate at which you may call KMS. Reduce the frequency of your calls.")
	p.Broken = service.Whole(http.StatusOK, json11Type, []byte(`{"KeyId":"arn:aws:kms:`))
	return p
}

func writeJSON(r *service.Request, status int, contentType string, body any) service.Answer {
	r.Reply.Set("X-Amzn-Requestid", wire.UUID())
	return service.Whole(status, contentType, wire.Must(json.Marshal(body)))
}

// distribution is the protocol of registries: OCI distribution with AWS's messages.
func distribution() service.Protocol {
	return oci.Protocol(oci.Words{Failure: unknownFailure, Unavailable: temporaryFailure, Throttled: rateExceeded}, writeDistribution)
}

func writeDistribution(r *service.Request, status int, body any) service.Answer {
	return writeJSON(r, status, "application/json; charset=utf-8", body)
}

const s3Namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// element is an XML element that S3 adds to an error.
type element struct {
	XMLName xml.Name
	Value   string `xml:",chardata"`
}

// elements returns the additional elements of an S3 error, from pairs of names and values.
func elements(pairs ...string) []element {
	var out []element
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, element{xml.Name{Local: pairs[i]}, pairs[i+1]})
	}
	return out
}

type restError struct {
	XMLName       xml.Name `xml:"Error"`
	Code, Message string
	Details       any
	RequestID     string `xml:"RequestId"`
	HostID        string `xml:"HostId"`
}

// restXML is S3's protocol. Sources: Amazon S3 API Reference, "Error responses" and "List of error
// codes".
func restXML() service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			return writeRestXML(e.Status, restError{
				Code: e.Code, Message: e.Message, Details: e.Detail,
				RequestID: r.Reply.Get("X-Amz-Request-Id"), HostID: r.Reply.Get("X-Amz-Id-2"),
			})
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again."),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "Service is unable to handle request."),
		Throttled:   service.Refuse(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate."),
		Broken:      service.Whole(http.StatusOK, "application/xml", []byte(xml.Header+`<ListBucketResult xmlns="`+s3Namespace+`"><Na`)),
	}
}

func writeRestXML(status int, body any) service.Answer {
	return service.Whole(status, "application/xml", append([]byte(xml.Header), wire.Must(xml.Marshal(body))...))
}
