package azure

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Application permissions of Microsoft Graph. Source: Microsoft Learn, "Microsoft Graph permissions
// reference".
const (
	permissionRead  = "Application.Read.All"
	permissionWrite = "Application.ReadWrite.All" // includes reading
)

// maxDisplayName is the longest name of an application, in characters. Source: Microsoft Graph,
// application resource type.
const maxDisplayName = 256

// graphCall is an authorized call to Microsoft Graph. It reads or changes the caller's tenant.
type graphCall struct {
	*service.Request

	caller accessToken
	names  []string // variable parts of the path, from matchPath
	query  url.Values
}

// readGraph implements [service.Service] for Microsoft Graph in an environment.
func (c *Cloud) readGraph(r *service.Request, e *Environment) (service.Protocol, service.Handler) {
	var do func(*graphCall) (service.Answer, *service.Refusal)
	permissions := []string{permissionWrite}
	names, isFederated := matchPath("/v1.0/applications/*/federatedIdentityCredentials", r.URL.Path)
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/v1.0/applications":
		r.Call.Operation, do, permissions = "ListApplications", c.listApplications, append(permissions, permissionRead)
	case r.Method == http.MethodPost && r.URL.Path == "/v1.0/applications":
		r.Call.Operation, do = "CreateApplication", c.createApplication
	case r.Method == http.MethodPost && isFederated:
		r.Call.Operation, do = "CreateFederatedCredential", c.createFederated
	case r.Method == http.MethodPost && r.URL.Path == "/v1.0/servicePrincipals":
		r.Call.Operation, do = "CreateServicePrincipal", c.createServicePrincipal
	}
	return graphProtocol(e), func(r *service.Request) (service.Answer, *service.Refusal) {
		r.Call.Resource = printable(r.URL.Path)
		token, no := c.graphCaller(r, e)
		if no != nil {
			return nil, no
		}
		query, err := readValues(r.URL.RawQuery)
		switch {
		case do == nil:
			return nil, service.Refuse(http.StatusNotFound, "ResourceNotFound", "Resource not found for the segment.").
				Because("the local Microsoft Graph does not have the operation")
		case err != nil:
			return nil, service.Refuse(http.StatusBadRequest, "BadRequest", "The query cannot be read.").Because(printable(err.Error()))
		case !slices.ContainsFunc(token.roles, func(role string) bool { return slices.Contains(permissions, role) }):
			return nil, service.Refuse(http.StatusForbidden, "Authorization_RequestDenied",
				"Insufficient privileges to complete the operation.").
				Because("the token has none of the roles " + strings.Join(permissions, ", "))
		}
		for name := range query {
			if name != "$filter" || r.Method != http.MethodGet {
				return nil, service.Refuse(http.StatusBadRequest, "Request_BadRequest", "The query parameter is not supported.").
					Because("the local Microsoft Graph does not have the query parameter " + printable(name))
			}
		}
		return do(&graphCall{Request: r, caller: token, names: names, query: query})
	}
}

// graphCaller verifies the caller's access token of Entra ID.
func (c *Cloud) graphCaller(r *service.Request, e *Environment) (accessToken, *service.Refusal) {
	refuse := func(message, reason string) (accessToken, *service.Refusal) {
		return accessToken{}, service.Refuse(http.StatusUnauthorized, "InvalidAuthenticationToken", message).Because(reason)
	}
	raw, ok := wire.Bearer(r.Request)
	if !ok {
		return refuse("Access token is empty.", "no token was sent")
	}
	token, err := c.readAccessToken(r, raw)
	switch {
	case err != nil:
		return refuse("Access token validation failure.", err.Error())
	// Entra ID issues tokens for this environment's Graph only to tenants of this environment. So
	// the check of the audience also refuses tokens of other environments.
	case !e.isGraph(token.audience):
		return refuse("Access token validation failure. Invalid audience.", "the token is for "+token.audience)
	}
	r.Call.Principal = principalName(token.tenant, token.app)
	return token, nil
}

type graphApplication struct {
	Context     string `json:"@odata.context,omitempty"`
	ID          string `json:"id"`
	AppID       string `json:"appId"`
	DisplayName string `json:"displayName"`
}

func (a *application) graph() graphApplication {
	return graphApplication{ID: a.registration, AppID: a.clientID, DisplayName: a.name}
}

func graphContext(e *Environment, of string) string {
	return "https://" + e.GraphHost + "/v1.0/$metadata#" + of
}

// listApplications finds applications by client ID, or by the beginning of their names. Source:
// Microsoft Graph, "List applications".
func (c *Cloud) listApplications(call *graphCall) (service.Answer, *service.Refusal) {
	filter := call.query.Get("$filter")
	clientID, byID := quoted(filter, "appId eq '", "'")
	begin, byName := quoted(filter, "startswith(displayName,'", "')")
	if !byID && !byName {
		return nil, service.Refuse(http.StatusBadRequest, "Request_UnsupportedQuery",
			"Unsupported or invalid query filter clause specified.").
			Because("the local Microsoft Graph finds applications by appId and the beginning of displayName only")
	}
	list := struct {
		Context string             `json:"@odata.context"`
		Value   []graphApplication `json:"value"`
	}{graphContext(call.caller.tenant.environment, "applications"), []graphApplication{}}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, app := range call.caller.tenant.apps {
		beginning := len(app.name) >= len(begin) && strings.EqualFold(app.name[:len(begin)], begin)
		if app.registration != "" && ((byID && app.clientID == strings.ToLower(clientID)) || (byName && beginning)) {
			list.Value = append(list.Value, app.graph())
		}
	}
	slices.SortFunc(list.Value, func(a, b graphApplication) int { return strings.Compare(a.ID, b.ID) })
	return writeJSON(http.StatusOK, list), nil
}

// createApplication registers an application, without a service principal yet. Source: Microsoft
// Graph, "Create application".
func (c *Cloud) createApplication(call *graphCall) (service.Answer, *service.Refusal) {
	var sent struct {
		DisplayName    string `json:"displayName"`
		KeyCredentials []any  `json:"keyCredentials"` // must be empty; az sends an empty list
	}
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, badGraphBody(err)
	}
	switch {
	case sent.DisplayName == "":
		return nil, service.Refuse(http.StatusBadRequest, "Request_BadRequest",
			"A value is required for property 'displayName' of resource 'Application'.")
	case len([]rune(sent.DisplayName)) > maxDisplayName:
		return nil, service.Refuse(http.StatusBadRequest, "Request_BadRequest",
			"Invalid value specified for property 'displayName' of resource 'Application'.")
	case len(sent.KeyCredentials) > 0:
		return nil, service.Refuse(http.StatusBadRequest, "Request_BadRequest",
			"Invalid value specified for property 'keyCredentials' of resource 'Application'.").
			Because("applications of the local Entra ID have no certificates")
	}
	app := &application{clientID: wire.UUID(), registration: wire.UUID(), name: sent.DisplayName}
	c.mu.Lock()
	defer c.mu.Unlock()
	call.caller.tenant.apps[app.clientID] = app
	answer := app.graph()
	answer.Context = graphContext(call.caller.tenant.environment, "applications/$entity")
	return writeJSON(http.StatusCreated, answer), nil
}

func badGraphBody(err error) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "Request_BadRequest", "Invalid request body: "+printable(err.Error()))
}

// graphFederated is the JSON form of a federated credential. Its ID is not stored, because no call
// to the local Microsoft Graph uses it.
type graphFederated struct {
	Context     string   `json:"@odata.context,omitempty"`
	ID          string   `json:"id,omitempty"`
	Name        string   `json:"name"`
	Issuer      string   `json:"issuer"`
	Subject     string   `json:"subject"`
	Description string   `json:"description,omitempty"`
	Audiences   []string `json:"audiences"`
}

// createFederated adds a federated credential to an application. Source: Microsoft Graph, "Create
// federatedIdentityCredential".
func (c *Cloud) createFederated(call *graphCall) (service.Answer, *service.Refusal) {
	var sent graphFederated
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, badGraphBody(err)
	}
	invalid := func(message string) *service.Refusal {
		return service.Refuse(http.StatusBadRequest, "InvalidFederatedIdentityCredentialValue", message)
	}
	if len(sent.Audiences) != 1 || sent.Audiences[0] == "" {
		return nil, invalid("Exactly one audience is required. paramName: FederatedIdentityCredential.Audiences, objectType: Microsoft.Online.DirectoryServices.Application")
	}
	t := call.caller.tenant
	complete, err := FederatedCredential{
		Name: sent.Name, Issuer: sent.Issuer, Subject: sent.Subject, Audience: sent.Audiences[0],
	}.complete(t.environment)
	if err != nil {
		return nil, invalid(printable(err.Error()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	objectID := strings.ToLower(call.names[0])
	app := t.find(func(a *application) bool { return a.registration != "" && a.registration == objectID })
	if app == nil {
		return nil, service.Refuse(http.StatusNotFound, "Request_ResourceNotFound", "Resource '"+printable(call.names[0])+
			"' does not exist or one of its queried reference-property objects are not present.")
	}
	for _, old := range app.credentials {
		switch {
		case old.Name == sent.Name:
			return nil, service.Refuse(http.StatusConflict, "Request_MultipleObjectsWithSameKeyValue",
				"FederatedIdentityCredential with name "+sent.Name+" already exists.")
		case old.Issuer == sent.Issuer && old.Subject == sent.Subject:
			return nil, invalid(fmt.Sprintf(
				"The combination of issuer and subject must be unique for the application. Issuer %s and Subject: %s already exist. "+
					"paramName: FederatedIdentityCredential.Subject, paramValue: %s, objectType: Microsoft.Online.DirectoryServices.Application",
				printable(sent.Issuer), printable(sent.Subject), printable(sent.Subject)))
		}
	}
	changed := *app
	changed.credentials = append(slices.Clone(app.credentials), complete)
	if err := checkCredentials(changed.credentials); err != nil {
		return nil, invalid(printable(err.Error()))
	}
	t.apps[app.clientID] = &changed
	sent.ID, sent.Context = wire.UUID(), graphContext(t.environment,
		"applications('"+app.registration+"')/federatedIdentityCredentials/$entity")
	return writeJSON(http.StatusCreated, sent), nil
}

// createServicePrincipal makes an application's service principal. From then on, the application
// can get tokens. Source: Microsoft Graph, "Create servicePrincipal".
func (c *Cloud) createServicePrincipal(call *graphCall) (service.Answer, *service.Refusal) {
	var sent struct {
		AppID   string `json:"appId"`
		Enabled *bool  `json:"accountEnabled"`
	}
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, badGraphBody(err)
	}
	switch {
	case sent.AppID == "":
		return nil, service.Refuse(http.StatusBadRequest, "Request_BadRequest",
			"A value is required for property 'appId' of resource 'ServicePrincipal'.")
	case sent.Enabled != nil && !*sent.Enabled:
		return nil, service.Refuse(http.StatusBadRequest, "Request_BadRequest",
			"Invalid value specified for property 'accountEnabled' of resource 'ServicePrincipal'.").
			Because("the local Entra ID has no disabled service principals")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := call.caller.tenant
	app := t.apps[strings.ToLower(sent.AppID)]
	switch {
	case app == nil || app.registration == "":
		return nil, service.Refuse(http.StatusBadRequest, "NoBackingApplicationObject", "The appId '"+printable(sent.AppID)+
			"' of the service principal does not reference a valid application object.")
	case app.objectID != "":
		return nil, service.Refuse(http.StatusConflict, "Request_MultipleObjectsWithSameKeyValue",
			"The service principal cannot be created, updated, or restored because the service principal name "+
				app.clientID+" is already in use.")
	}
	changed := *app
	changed.objectID = wire.UUID()
	t.apps[app.clientID] = &changed
	return writeJSON(http.StatusCreated, struct {
		graphApplication

		Enabled bool   `json:"accountEnabled"`
		Owner   string `json:"appOwnerOrganizationId"`
		Type    string `json:"servicePrincipalType"`
	}{
		graphApplication{graphContext(t.environment, "servicePrincipals/$entity"), changed.objectID, app.clientID, app.name},
		true, t.id, "Application",
	}), nil
}

type graphErrorBody struct {
	Code       string          `json:"code"`
	Message    string          `json:"message"`
	InnerError graphErrorInner `json:"innerError"`
}

type graphErrorInner struct {
	Date            string `json:"date"`
	RequestID       string `json:"request-id"`
	ClientRequestID string `json:"client-request-id"`
}

// graphProtocol returns the error format of Microsoft Graph. Source: Microsoft Learn, "Microsoft
// Graph error responses and resource types".
func graphProtocol(e *Environment) service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, no *service.Refusal) service.Answer {
			id := wire.UUID()
			client := strings.ToLower(r.Header.Get("Client-Request-Id"))
			if !correlationPattern.MatchString(client) {
				client = id
			}
			if no.Status == http.StatusUnauthorized {
				r.Reply.Set("Www-Authenticate", `Bearer realm="", authorization_uri="https://`+e.authority()+
					// The client_id is Microsoft Graph's application ID.
					`/common/oauth2/authorize", client_id="00000003-0000-0000-c000-000000000000"`)
			}
			r.Reply.Set("Request-Id", id)
			return writeJSON(no.Status, map[string]graphErrorBody{
				"error": {no.Code, no.Message, graphErrorInner{r.Now.UTC().Format(time.DateOnly + "T15:04:05"), id, client}},
			})
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "InternalServerError", "Encountered an internal server error."),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "The service is temporarily unavailable."),
		Throttled:   service.Refuse(http.StatusTooManyRequests, "TooManyRequests", "Too many requests."),
		Broken:      service.Whole(http.StatusOK, jsonType, []byte(`{"@odata.context":"https://`)),
	}
}
