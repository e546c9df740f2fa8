package aws

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// maxAPIBody is the maximum length of a request to an API in bytes.
const maxAPIBody = 1 << 20

// apiCall is a call of an API's operation.
type apiCall struct {
	*service.Request

	ep     endpoint
	body   []byte
	params *params   // nil unless the protocol is Query
	who    principal // zero for an unsigned operation
}

// operation is an operation of an API. An unsigned operation authenticates its caller itself.
type operation struct {
	unsigned bool
	// do runs the operation and returns its result. If the operation has no result, do returns nil.
	// A queryAPI writes the result as XML, and a jsonAPI writes it as JSON.
	do func(*Cloud, *apiCall) (any, *service.Refusal)
}

// perform runs the operation. Unless the operation is unsigned, perform first authenticates the
// caller by SigV4.
func (c *Cloud) perform(call *apiCall, op operation) (any, *service.Refusal) {
	if !op.unsigned {
		if refusal := c.authenticate(call); refusal != nil {
			return nil, refusal
		}
	}
	return op.do(c, call)
}

// require checks that the caller's policies allow actions that have no resource.
func (c *Cloud) require(call *apiCall, actions ...string) *service.Refusal {
	for _, action := range actions {
		if refusal := c.requireOn(call, "*", action); refusal != nil {
			return refusal
		}
	}
	return nil
}

// requireOn checks that the caller's policies allow an action on a resource of the caller's
// account.
func (c *Cloud) requireOn(call *apiCall, resource, action string) *service.Refusal {
	return c.requireIn(call, resource, action, requestContext(call.ep, call.Now))
}

// requireIn is like requireOn, but evaluates the policies' conditions in the given context.
func (c *Cloud) requireIn(call *apiCall, resource, action string, context policy.Context) *service.Refusal {
	return c.permit(call.who, ask{action: action, resource: resource, owner: call.who.account, context: context}, "AccessDenied")
}

// readBody reads the whole request.
func (call *apiCall) readBody() *service.Refusal {
	var err error
	if call.body, err = call.ReadBody(maxAPIBody); err == nil {
		return nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return service.Refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Request is too large")
	}
	return service.Refuse(http.StatusBadRequest, "IncompleteBody", "The request body could not be read")
}

// queryAPI is an API of the AWS Query protocol.
type queryAPI struct {
	version, namespace string
	operations         map[string]operation
}

// readQuery implements [service.Service] for a Query API at the endpoint ep.
func (c *Cloud) readQuery(r *service.Request, ep endpoint, api queryAPI) (service.Protocol, service.Handler) {
	protocol := queryXML(api.namespace)
	call := &apiCall{Request: r, ep: ep}
	op, refusal := api.read(call)
	if refusal != nil {
		return protocol, refusal.Handle
	}
	return protocol, func(r *service.Request) (service.Answer, *service.Refusal) {
		result, refusal := c.perform(call, op)
		if refusal != nil {
			return nil, refusal
		}
		name, id := r.Call.Operation, wire.UUID()
		return writeXML(r, http.StatusOK, id, queryResponse{
			XMLName: xml.Name{Space: api.namespace, Local: name + "Response"}, Result: queryResult{name + "Result", result}, RequestID: id,
		}), nil
	}
}

// read reads the call's parameters and finds its operation.
func (api queryAPI) read(call *apiCall) (operation, *service.Refusal) {
	if refusal := call.readBody(); refusal != nil {
		return operation{}, refusal
	}
	if call.URL.Path != "/" && call.URL.Path != "" {
		return operation{}, service.Refuse(http.StatusNotFound, "UnknownOperationException", "")
	}
	var refusal *service.Refusal
	if call.params, refusal = readParams(call.Request.Request, call.body); refusal != nil {
		return operation{}, refusal
	}
	action, version := call.params.get("Action"), call.params.get("Version")
	op, known := api.operations[action]
	if known {
		call.Call.Operation = action
	}
	switch {
	case action == "":
		return operation{}, service.Refuse(http.StatusBadRequest, "MissingAction",
			"The request is missing an action or a required parameter.")
	case known && version == api.version:
		return op, nil
	case version == "":
		version = "NO_VERSION_SPECIFIED"
	}
	return operation{}, service.Refuse(http.StatusBadRequest, "InvalidAction", "Could not find operation "+action+" for version "+version)
}

// queryResponse is the answer of a Query API. It wraps an operation's result.
type queryResponse struct {
	XMLName   xml.Name
	Result    queryResult
	RequestID string `xml:"ResponseMetadata>RequestId"`
}

// queryResult is an operation's result in an XML element, such as CreateRoleResult.
type queryResult struct {
	name  string
	value any
}

// MarshalXML writes the element, or nothing if the operation has no result.
func (r queryResult) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	if r.value == nil {
		return nil
	}
	start.Name.Local = r.name
	return e.EncodeElement(r.value, start) // unwrapped error, as callers of an xml.Marshaler expect
}

// jsonAPI is an API of the AWS JSON 1.1 protocol.
type jsonAPI struct {
	// target is the prefix of the operation's name in the header X-Amz-Target.
	target string
	// protocol is json11, or a variant of it with the API's own codes and messages.
	protocol   service.Protocol
	operations map[string]operation
}

// readJSON implements [service.Service] for a JSON API at the endpoint ep.
func (c *Cloud) readJSON(r *service.Request, ep endpoint, api jsonAPI) (service.Protocol, service.Handler) {
	call := &apiCall{Request: r, ep: ep}
	op, refusal := api.read(call)
	if refusal != nil {
		return api.protocol, refusal.Handle
	}
	return api.protocol, func(r *service.Request) (service.Answer, *service.Refusal) {
		result, refusal := c.perform(call, op)
		if refusal != nil {
			return nil, refusal
		}
		return writeJSON(r, http.StatusOK, json11Type, result), nil
	}
}

// read reads the call's body and finds its operation.
func (api jsonAPI) read(call *apiCall) (operation, *service.Refusal) {
	if refusal := call.readBody(); refusal != nil {
		return operation{}, refusal
	}
	if call.Method != http.MethodPost || call.URL.Path != "/" {
		return operation{}, service.Refuse(http.StatusNotFound, "UnknownOperationException", "")
	}
	target := call.Header.Get("X-Amz-Target")
	name, ok := strings.CutPrefix(target, api.target)
	if op, known := api.operations[name]; ok && known {
		call.Call.Operation = name
		return op, nil
	}
	// AWS sends no message for an unknown operation. The local cloud sends one, because the
	// operation may exist at AWS.
	return operation{}, service.Refuse(http.StatusBadRequest, "UnknownOperationException", fmt.Sprintf(
		"the local cloud does not have the operation %.200q; it has %s",
		target, strings.Join(slices.Sorted(maps.Keys(api.operations)), ", ")))
}

// withInput returns an operation of a JSON API. The operation decodes the call's body, and passes
// the decoded input to the function do.
func withInput[I any](do func(*Cloud, *apiCall, I) (any, *service.Refusal)) operation {
	return operation{do: func(c *Cloud, call *apiCall) (any, *service.Refusal) {
		var input I
		if err := json.Unmarshal(call.body, &input); err != nil {
			return nil, service.Refuse(http.StatusBadRequest, "SerializationException", "The request is not JSON")
		}
		return do(c, call, input)
	}}
}
