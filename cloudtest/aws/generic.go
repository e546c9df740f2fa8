package aws

import (
	"encoding/json"
	"encoding/xml"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Headers in the answers of generic services. AWS does not send them. They tell clients of every
// SDK who the caller was, for every operation.
const (
	// HeaderCallerARN is the ARN of the session or user that signed the request.
	HeaderCallerARN = "X-Cloudtest-Caller-Arn"
	// HeaderCallerAccount is the ID of the caller's account.
	HeaderCallerAccount = "X-Cloudtest-Caller-Account"
)

// generic is a service without data. It authenticates the caller and answers with an empty result.
// The caller's policies must allow the operation on the resource "*".
type generic struct {
	name     string // the service's name in hosts and in the scope of credentials
	actions  string // the service's prefix in IAM's actions
	protocol func() genericProtocol
}

// genericServices returns the AWS services whose operations the local cloud answers with an empty
// result. Sources: AWS General Reference, "AWS service endpoints"; Service Authorization Reference,
// "Actions, resources, and condition keys".
func genericServices() []generic {
	return []generic{
		{"autoscaling", "autoscaling", genericQuery},
		{"ec2", "ec2", genericEC2},
		{"elasticloadbalancing", "elasticloadbalancing", genericQuery},
		{"events", "events", genericJSON},
		{"secretsmanager", "secretsmanager", genericJSON},
		{"ssm", "ssm", genericJSON},
		{"tagging", "tag", genericJSON},
	}
}

// GenericServices returns the names that the journal and faults use for the generic services. Each
// name is the first label of the service's hosts.
func GenericServices() []string {
	var names []string
	for _, g := range genericServices() {
		names = append(names, g.name)
	}
	return names
}

// genericProtocol is the part of an AWS protocol that all operations have in common.
type genericProtocol struct {
	words func(namespace string) service.Protocol
	// read reads the operation from the call and sets it in the journal. It returns the XML
	// namespace of the answer, or an empty text if the protocol has no namespaces.
	read   func(*apiCall) (namespace string, refusal *service.Refusal)
	answer func(call *apiCall, namespace string) service.Answer
}

// readGeneric reads a request to one of the services in genericServices, as a [service.Service]
// does. It returns the service's error format, and the handler that decides about the request.
func (c *Cloud) readGeneric(r *service.Request, ep endpoint) (service.Protocol, service.Handler) {
	all := genericServices()
	g := all[slices.IndexFunc(all, func(g generic) bool { return g.name == ep.service })]
	protocol := g.protocol()
	call := &apiCall{Request: r, ep: ep}
	refusal := call.readBody()
	if refusal == nil && call.URL.Path != "/" && call.URL.Path != "" {
		refusal = service.Refuse(http.StatusNotFound, "UnknownOperationException", "")
	}
	namespace := ""
	if refusal == nil {
		namespace, refusal = protocol.read(call)
	}
	if refusal != nil {
		return protocol.words(namespace), refusal.Handle
	}
	return protocol.words(namespace), func(r *service.Request) (service.Answer, *service.Refusal) {
		if refusal := c.authenticate(call); refusal != nil {
			return nil, refusal
		}
		if refusal := c.require(call, g.actions+":"+call.Call.Operation); refusal != nil {
			return nil, refusal
		}
		r.Reply.Set(HeaderCallerARN, call.who.arn())
		r.Reply.Set(HeaderCallerAccount, call.who.account)
		return protocol.answer(call, namespace), nil
	}
}

// Patterns of the names of operations and the versions of APIs.
var (
	operationPattern = regexp.MustCompile(`\A[A-Z][A-Za-z0-9]{2,99}\z`)
	versionPattern   = regexp.MustCompile(`\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z`)
)

// genericQuery is the AWS Query protocol.
func genericQuery() genericProtocol {
	return genericProtocol{words: queryXML, read: readAction, answer: func(call *apiCall, namespace string) service.Answer {
		name, id := call.Call.Operation, wire.UUID()
		return writeXML(call.Request, http.StatusOK, id, queryResponse{
			XMLName: xml.Name{Space: namespace, Local: name + "Response"}, Result: queryResult{name + "Result", struct{}{}}, RequestID: id,
		})
	}}
}

// genericEC2 is the EC2 Query protocol. Its answers have no element around their result.
func genericEC2() genericProtocol {
	return genericProtocol{words: ec2XML, read: readAction, answer: func(call *apiCall, namespace string) service.Answer {
		id := wire.UUID()
		return writeXML(call.Request, http.StatusOK, id, ec2Response{
			XMLName: xml.Name{Space: namespace, Local: call.Call.Operation + "Response"}, RequestID: id,
		})
	}}
}

// ec2Response is an empty answer of EC2.
type ec2Response struct {
	XMLName   xml.Name
	RequestID string `xml:"requestId"`
}

// readAction reads the operation and the API's version from a call of a Query protocol. It sets the
// operation in the journal. It returns the XML namespace of the answer, which contains the version.
func readAction(call *apiCall) (string, *service.Refusal) {
	var refusal *service.Refusal
	if call.params, refusal = readParams(call.Request.Request, call.body); refusal != nil {
		return "", refusal
	}
	action, version := call.params.get("Action"), call.params.get("Version")
	switch {
	case action == "":
		return "", service.Refuse(http.StatusBadRequest, "MissingAction", "The request is missing an action or a required parameter.")
	case !operationPattern.MatchString(action) || !versionPattern.MatchString(version):
		return "", service.Refuse(http.StatusBadRequest, "InvalidAction", "The action or its version is not valid.")
	}
	call.Call.Operation = action
	return "http://" + call.ep.service + ".amazonaws.com/doc/" + version + "/", nil
}

// genericJSON is the AWS JSON 1.1 protocol. It has no namespaces.
func genericJSON() genericProtocol {
	return genericProtocol{
		words: func(string) service.Protocol { return json11() },
		read:  func(call *apiCall) (string, *service.Refusal) { return "", readTarget(call) },
		answer: func(call *apiCall, _ string) service.Answer {
			return writeJSON(call.Request, http.StatusOK, json11Type, struct{}{})
		},
	}
}

// readTarget reads the operation of a call of the JSON protocol.
func readTarget(call *apiCall) *service.Refusal {
	media, _, err := mime.ParseMediaType(call.Header.Get("Content-Type"))
	_, name, ok := strings.Cut(call.Header.Get("X-Amz-Target"), ".")
	if err != nil || media != json11Type || call.Method != http.MethodPost || !ok || !operationPattern.MatchString(name) {
		return service.Refuse(http.StatusBadRequest, "UnknownOperationException", "")
	}
	call.Call.Operation = name
	if !json.Valid(call.body) {
		return service.Refuse(http.StatusBadRequest, "SerializationException", "The request is not JSON")
	}
	return nil
}
