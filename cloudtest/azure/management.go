package azure

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Paths, resource types and first API versions of Azure Resource Manager. In paths, "*" matches one
// name, and Azure ignores case.
const (
	pathGroup              = "/subscriptions/*/resourceGroups/*"
	pathIdentity           = pathGroup + "/providers/" + typeIdentity + "/*"
	pathFederated          = pathIdentity + "/federatedIdentityCredentials/*"
	pathRegistry           = pathGroup + "/providers/" + typeRegistry + "/*"
	pathDefinitions        = pathRegistry + "/providers/Microsoft.Authorization/roleDefinitions"
	pathAssignment         = pathRegistry + "/providers/Microsoft.Authorization/roleAssignments/*"
	typeRegistry           = "Microsoft.ContainerRegistry/registries"
	typeIdentity           = "Microsoft.ManagedIdentity/userAssignedIdentities"
	firstFederatedVersion  = "2022-01-31-preview" // the first with federated credentials
	firstManagementVersion = "2014-04-01"
)

// managementOperation is an operation of Azure Resource Manager.
type managementOperation struct {
	name, method, path string
	action             string // needed permission; empty for lists, whose items are filtered
	first              string // the first API version with the operation
	filter             bool   // whether the query may have a filter
	do                 func(*Cloud, *managementCall) (service.Answer, *service.Refusal)
}

func managementOperations() []managementOperation {
	const authorization = "Microsoft.Authorization"
	return []managementOperation{
		{"ListSubscriptions", http.MethodGet, "/subscriptions", "", firstManagementVersion, false, (*Cloud).listSubscriptions},
		{"ListResources", http.MethodGet, "/subscriptions/*/resources", "", firstManagementVersion, true, (*Cloud).listResources},
		{
			"GetResourceGroup", http.MethodGet, pathGroup, "Microsoft.Resources/subscriptions/resourceGroups/read",
			firstManagementVersion, false, (*Cloud).getGroup,
		},
		{"PutIdentity", http.MethodPut, pathIdentity, typeIdentity + "/write", firstManagementVersion, false, (*Cloud).putIdentity},
		{"GetIdentity", http.MethodGet, pathIdentity, typeIdentity + "/read", firstManagementVersion, false, (*Cloud).getIdentity},
		{
			"PutFederatedCredential", http.MethodPut, pathFederated,
			typeIdentity + "/federatedIdentityCredentials/write", firstFederatedVersion, false, (*Cloud).putFederated,
		},
		{"GetRegistry", http.MethodGet, pathRegistry, typeRegistry + "/read", firstManagementVersion, false, (*Cloud).getRegistry},
		{
			"ListRoleDefinitions", http.MethodGet, pathDefinitions, authorization + "/roleDefinitions/read",
			firstManagementVersion, true, (*Cloud).listDefinitions,
		},
		{
			"PutRoleAssignment", http.MethodPut, pathAssignment, authorization + "/roleAssignments/write",
			firstManagementVersion, false, (*Cloud).putAssignment,
		},
	}
}

// managementCall is a call of a [managementOperation]. The operation runs only if the caller is
// verified and has the needed permission.
type managementCall struct {
	*service.Request

	caller       accessToken
	subscription *subscription  // nil if the path names no subscription
	group        *ResourceGroup // nil if the path names no resource group
	names        []string       // names in the path after the group's name
	query        url.Values
}

// matchPath returns the parts of a path at the positions where the pattern has "*".
func matchPath(pattern, path string) (names []string, ok bool) {
	wanted, parts := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(wanted) != len(parts) {
		return nil, false
	}
	for i, part := range parts {
		switch {
		case wanted[i] == "*" && part != "":
			names = append(names, part)
		case !strings.EqualFold(wanted[i], part):
			return nil, false
		}
	}
	return names, true
}

// readManagement implements [service.Service] for Azure Resource Manager in an environment. Source:
// Microsoft Learn, "Azure REST API reference".
func (c *Cloud) readManagement(r *service.Request, e *Environment) (service.Protocol, service.Handler) {
	var op managementOperation
	var names []string
	for _, known := range managementOperations() {
		if found, ok := matchPath(known.path, r.URL.Path); ok && known.method == r.Method {
			op, names = known, found
		}
	}
	r.Call.Operation = op.name
	return managementProtocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
		r.Call.Resource = printable(r.URL.Path)
		call := &managementCall{Request: r}
		if no := c.proveManager(call, e); no != nil {
			return nil, no
		}
		if no := call.readQuery(op); no != nil {
			return nil, no
		}
		if op.do == nil {
			return nil, service.Refuse(http.StatusNotFound, "InvalidResourceType", "The resource type could not be found.").
				Because("the local Azure Resource Manager does not have the operation")
		}
		if no := c.judge(call, names, op.action); no != nil {
			return nil, no
		}
		return op.do(c, call)
	}
}

// proveManager verifies the caller's access token of Entra ID.
func (c *Cloud) proveManager(call *managementCall, e *Environment) *service.Refusal {
	raw, ok := wire.Bearer(call.Request.Request)
	if !ok {
		return unproved(e, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	}
	token, err := c.readAccessToken(call.Request, raw)
	switch {
	case errors.Is(err, oidc.ErrExpired):
		return unproved(e, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than current UTC time '"+
			call.Now.UTC().Format(time.RFC1123)+"'.")
	case err != nil:
		return unproved(e, "InvalidAuthenticationToken", "The access token is invalid.").Because(err.Error())
	case token.tenant.environment != e:
		return unproved(e, "InvalidAuthenticationToken", "The access token is invalid.").
			Because("the token is of the environment " + token.tenant.environment.Name)
	case !e.isResourceManager(token.audience):
		return unproved(e, "InvalidAuthenticationTokenAudience",
			"The access token has been obtained for wrong audience or resource '"+printable(token.audience)+
				"'. It should exactly match with one of the allowed audiences '"+strings.Join(e.ResourceManagers, "','")+"'.")
	}
	call.caller, call.Call.Principal = token, principalName(token.tenant, token.app)
	return nil
}

// unproved returns the refusal for a missing or invalid access token. Source: Microsoft Learn,
// "Authenticate requests" of Azure Resource Manager; RFC 6750 §3.
func unproved(e *Environment, code, message string) *service.Refusal {
	return service.Refuse(http.StatusUnauthorized, code, message).
		With(`Bearer authorization_uri="https://` + e.authority() +
			`/", error="invalid_token", error_description="` + strings.ReplaceAll(message, `"`, "'") + `"`)
}

// readQuery reads the query. The api-version must be one in which the operation exists.
func (call *managementCall) readQuery(op managementOperation) *service.Refusal {
	query, err := readValues(call.URL.RawQuery)
	version := query.Get("api-version")
	switch {
	case err != nil:
		return service.Refuse(http.StatusBadRequest, "InvalidQueryString", "The query string cannot be read.").
			Because(printable(err.Error()))
	case version == "":
		return service.Refuse(http.StatusBadRequest, "MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")
	case !versionPattern.MatchString(strings.TrimSuffix(version, "-preview")) || version < op.first:
		return service.Refuse(http.StatusBadRequest, "InvalidApiVersionParameter", "The api-version '"+printable(version)+"' is invalid.")
	}
	for name := range query {
		if name != "api-version" && (name != "$filter" || !op.filter) {
			return service.Refuse(http.StatusBadRequest, "InvalidQueryString", "The query parameter is not supported.").
				Because("the local Azure Resource Manager does not have the query parameter " + printable(name))
		}
	}
	call.query = query
	return nil
}

// judge finds the subscription and the resource group that a path names. It checks whether the
// caller may do the action in the group. A caller without permission does not learn whether the
// group exists.
func (c *Cloud) judge(call *managementCall, names []string, action string) *service.Refusal {
	if len(names) == 0 {
		return nil
	}
	c.mu.RLock()
	s := c.subscriptions[strings.ToLower(names[0])]
	c.mu.RUnlock()
	switch {
	case s == nil:
		return service.Refuse(http.StatusNotFound, "SubscriptionNotFound", "The subscription '"+printable(names[0])+"' could not be found.")
	case s.tenant != call.caller.tenant:
		e := s.tenant.environment
		return unproved(e, "InvalidAuthenticationTokenTenant",
			"The access token is from the wrong issuer '"+e.issuer(call.caller.tenant.id)+
				"'. It must match the tenant '"+e.issuer(s.tenant.id)+"' associated with this subscription. "+
				"Please use the authority (URL) 'https://"+e.authority()+"/"+s.tenant.id+"' to get the token.")
	}
	call.subscription = s
	if len(names) == 1 {
		return nil
	}
	if !s.allows(call.caller.app.clientID, names[1], action) {
		return call.forbidden(action)
	}
	call.group, call.names = s.group(names[1]), names[2:]
	if call.group == nil {
		return service.Refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '"+printable(names[1])+"' could not be found.")
	}
	return nil
}

// forbidden returns the refusal of a caller without a role that allows an action. Source: Microsoft
// Learn, "Troubleshoot Azure RBAC".
func (call *managementCall) forbidden(action string) *service.Refusal {
	who := call.caller
	return service.Refuse(http.StatusForbidden, "AuthorizationFailed",
		fmt.Sprintf("The client '%s' with object id '%s' does not have authorization to perform action '%s' "+
			"over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
			who.app.clientID, who.app.objectID, action, printable(call.URL.Path)))
}

// resourceNotFound returns the refusal for a missing resource. Source: Microsoft Learn, "Resolve
// errors for resource not found".
func (call *managementCall) resourceNotFound(kind, name string) *service.Refusal {
	return service.Refuse(http.StatusNotFound, "ResourceNotFound",
		fmt.Sprintf("The Resource '%s/%s' under resource group '%s' was not found. "+
			"For more details please go to https://aka.ms/ARMResourceNotFoundFix", kind, printable(name), call.group.Name))
}

// groupID returns a resource group's ID.
func (s *subscription) groupID(g *ResourceGroup) string {
	return "/subscriptions/" + s.id + "/resourceGroups/" + g.Name
}

// resource is the JSON form of a resource of any kind, such as a registry or a managed identity.
// The type of Properties depends on the kind. Fields that the kind does not have are empty.
type resource struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Type       string `json:"type,omitempty"`
	Location   string `json:"location,omitempty"`
	SKU        *sku   `json:"sku,omitempty"`
	Properties any    `json:"properties,omitempty"`
}

type sku struct {
	Name string `json:"name"`
	Tier string `json:"tier"`
}

type resourceList struct {
	Value []any `json:"value"`
}

type subscriptionJSON struct {
	ID             string `json:"id"`
	SubscriptionID string `json:"subscriptionId"`
	TenantID       string `json:"tenantId"`
	DisplayName    string `json:"displayName"`
	State          string `json:"state"`
}

// listSubscriptions lists the tenant's subscriptions in which the caller has a role.
func (c *Cloud) listSubscriptions(call *managementCall) (service.Answer, *service.Refusal) {
	list := resourceList{Value: []any{}}
	c.mu.RLock()
	defer c.mu.RUnlock()
	byID := func(a, b *subscription) int { return strings.Compare(a.id, b.id) }
	for _, s := range slices.SortedFunc(maps.Values(c.subscriptions), byID) {
		if s.tenant == call.caller.tenant && s.knows(call.caller.app.clientID) {
			list.Value = append(list.Value, subscriptionJSON{"/subscriptions/" + s.id, s.id, s.tenant.id, s.name, "Enabled"})
		}
	}
	return writeJSON(http.StatusOK, list), nil
}

// listResources lists those registries of a subscription that the caller may read.
func (c *Cloud) listResources(call *managementCall) (service.Answer, *service.Refusal) {
	s, who := call.subscription, call.caller.app.clientID
	if !s.knows(who) {
		return nil, call.forbidden("Microsoft.Resources/subscriptions/resources/read")
	}
	if filter := call.query.Get("$filter"); !strings.EqualFold(filter, "resourceType eq '"+typeRegistry+"'") {
		return nil, service.Refuse(http.StatusBadRequest, "InvalidFilterInQueryString",
			"Invalid $filter '"+printable(filter)+"' specified in the query string.").
			Because("the local Azure Resource Manager lists registries only")
	}
	list := resourceList{Value: []any{}}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range s.groups {
		g := &s.groups[i]
		for _, name := range g.Registries {
			if reg := c.registryIn(s, g, name); reg != nil && s.allows(who, g.Name, typeRegistry+"/read") {
				found := registryResource(s, g, reg)
				found.Properties = nil
				list.Value = append(list.Value, found)
			}
		}
	}
	return writeJSON(http.StatusOK, list), nil
}

func (c *Cloud) getGroup(call *managementCall) (service.Answer, *service.Refusal) {
	g := call.group
	return writeJSON(http.StatusOK, resource{
		ID: call.subscription.groupID(g), Name: g.Name, Type: "Microsoft.Resources/resourceGroups",
		Location: g.Location, Properties: map[string]string{"provisioningState": "Succeeded"},
	}), nil
}

// managementProtocol returns the error format of Azure Resource Manager. A refusal's Detail, if it
// is a string, becomes the header Www-Authenticate. Source: Microsoft Learn, "Common error
// response" of Azure Resource Manager.
func managementProtocol() service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, no *service.Refusal) service.Answer {
			if challenge, ok := no.Detail.(string); ok {
				r.Reply.Set("Www-Authenticate", challenge)
			}
			r.Reply.Set("X-Ms-Failure-Cause", "gateway")
			r.Reply.Set("X-Ms-Request-Id", wire.UUID())
			return writeJSON(no.Status, map[string]any{"error": map[string]string{"code": no.Code, "message": no.Message}})
		},
		Failure: service.Refuse(http.StatusInternalServerError, "InternalServerError", "Encountered internal server error."),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable",
			"The service is unavailable. Please try again later."),
		Throttled: service.Refuse(http.StatusTooManyRequests, "TooManyRequests", "The request is being throttled. Please try again later."),
		Broken:    service.Whole(http.StatusOK, jsonType, []byte(`{"id":"/subscriptions/`)),
	}
}

func invalidContent(err error) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "InvalidRequestContent",
		"The request content was invalid and could not be deserialized: '"+printable(err.Error())+"'.")
}
