package azure

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Operations of Entra ID.
const (
	opToken             = "Token"
	opConfiguration     = "OpenIDConfiguration"
	opKeys              = "Keys"
	opInstanceDiscovery = "InstanceDiscovery"
)

// assertionType is the only kind of client assertion. Source: RFC 7523 §2.2.
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// entraOperation reads what a path asks for: /<tenant>/<rest>.
func entraOperation(path string) (tenantName, operation string) {
	tenantName, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch rest {
	case "oauth2/v2.0/token":
		return tenantName, opToken
	case "v2.0/.well-known/openid-configuration", ".well-known/openid-configuration":
		return tenantName, opConfiguration
	case "discovery/v2.0/keys", "discovery/keys":
		return tenantName, opKeys
	case "discovery/instance":
		return tenantName, opInstanceDiscovery
	}
	return tenantName, ""
}

func (c *Cloud) serveEntra(w http.ResponseWriter, r *http.Request, e *Environment, call *journal.Call) {
	p := newEntraProtocol(e, r)
	tenantName, operation := entraOperation(r.URL.Path)
	call.Operation = operation
	now, ok := c.begin(r.Context(), w, p, call)
	if !ok {
		return
	}
	p.now = func() time.Time { return now }
	var answer any
	var no *refusal
	switch operation {
	case opToken:
		answer, no = c.token(w, r, e, tenantName, call, now)
	case opConfiguration:
		answer, no = c.openIDConfiguration(r, e, tenantName)
	case opKeys:
		answer, no = c.publishedKeys(r, e, tenantName)
	case opInstanceDiscovery:
		answer, no = c.instanceDiscovery(r)
	default:
		no = aadsts(90023, http.StatusNotFound, "invalid_request", "Invalid STS request.").because("the local Entra ID has no such path")
	}
	if no != nil {
		p.refuse(w, call, no)
		return
	}
	w.Header().Set("X-Ms-Request-Id", wire.UUID())
	if operation == opToken {
		w.Header().Set("Cache-Control", "no-store, no-cache")
		w.Header().Set("Pragma", "no-cache")
	}
	writeJSON(w, http.StatusOK, answer)
}

// tenant finds a tenant of an environment by ID or domain.
func (c *Cloud) tenant(e *Environment, name string) (*tenant, *refusal) {
	name = strings.ToLower(name)
	switch name {
	case "common", "organizations", "consumers":
		return nil, badRequest(50059, "No tenant-identifying information found in either the request or implied by any provided credentials.")
	}
	c.mu.RLock()
	t := c.tenants[name]
	if t == nil {
		t = c.domains[name]
	}
	c.mu.RUnlock()
	switch {
	case t != nil && t.environment == e:
		return t, nil
	case !uuidPattern.MatchString(name) && (len(name) > maxHost || !hostPattern.MatchString(name)):
		return nil, badRequest(900023, "Specified tenant identifier '%s' is neither a valid DNS name, nor a valid external domain.", printable(name))
	}
	no := badRequest(90002, "Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. "+
		"Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant.", name)
	if t != nil {
		no.reason = "the tenant is in " + t.environment.Name + ", the request came to " + e.Name
	}
	return nil, no
}

// printable keeps what a caller sent from spoiling a message.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '\'' {
			return '?'
		}
		return r
	}, s)
}

type tokenResponse struct {
	TokenType    string `json:"token_type"`
	ExpiresIn    int    `json:"expires_in"`     // seconds
	ExtExpiresIn int    `json:"ext_expires_in"` // seconds
	AccessToken  string `json:"access_token"`
}

// token is the client credentials flow with an assertion. Source: Microsoft Learn, "OAuth 2.0 client credentials flow on the Microsoft identity
// platform", third case: access token request with a federated credential.
func (c *Cloud) token(w http.ResponseWriter, r *http.Request, e *Environment, tenantName string, call *journal.Call, now time.Time) (any, *refusal) {
	if r.Method != http.MethodPost {
		return nil, badRequest(900561, "The endpoint only accepts POST requests. Received a %s request.", printable(r.Method))
	}
	form, err := readForm(w, r)
	if err != nil {
		return nil, badForm(err)
	}
	call.Role = form.Get("client_id")
	t, no := c.tenant(e, tenantName)
	if no != nil {
		return nil, no
	}
	req, no := readTokenRequest(form)
	if no != nil {
		return nil, no
	}
	call.Resource = req.resource
	c.mu.RLock()
	app := t.apps[req.clientID]
	c.mu.RUnlock()
	if app == nil {
		return nil, aadsts(700016, http.StatusBadRequest, "unauthorized_client", "Application with identifier '%s' was not found in the directory '%s'. "+
			"This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. "+
			"You may have sent your authentication request to the wrong tenant.", printable(req.clientID), t.id)
	}
	if no := c.authenticateClient(r.Context(), form, app, call, now); no != nil {
		return nil, no
	}
	call.Principal = principalName(t, app)
	if !c.isResource(t, req.resource) {
		return nil, aadsts(500011, http.StatusBadRequest, "invalid_resource", "The resource principal named %s was not found in the tenant named %s. "+
			"This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. "+
			"You might have sent your authentication request to the wrong tenant.", printable(req.resource), t.id)
	}
	const life = int(EntraTokenLife/time.Second) - 1 // Entra tells one second less
	return tokenResponse{
		TokenType: "Bearer", ExpiresIn: life, ExtExpiresIn: life,
		AccessToken: c.issueAccessToken(t, app, req.resource, now, EntraTokenLife),
	}, nil
}

func badForm(err error) *refusal {
	if twice, ok := errors.AsType[*twiceError](err); ok {
		return badRequest(90100, "%s parameter is empty or not valid.", printable(twice.name)).because(printable(twice.Error()))
	}
	return badRequest(90023, "Invalid STS request.").because("the form cannot be read")
}

// tokenRequest is what a token is asked for.
type tokenRequest struct{ clientID, resource string }

func readTokenRequest(form url.Values) (tokenRequest, *refusal) {
	for _, name := range []string{"grant_type", "client_id", "scope"} {
		if form.Get(name) == "" {
			return tokenRequest{}, missingParameter(name)
		}
	}
	if grant := form.Get("grant_type"); grant != "client_credentials" {
		return tokenRequest{}, aadsts(70003, http.StatusBadRequest, "unsupported_grant_type", "The app requested an unsupported grant type '%s'.", printable(grant))
	}
	resource, no := readScope(form.Get("scope"))
	return tokenRequest{clientID: strings.ToLower(form.Get("client_id")), resource: resource}, no
}

func missingParameter(name string) *refusal {
	return badRequest(900144, "The request body must contain the following parameter: '%s'.", name)
}

// readScope reads the one resource that a scope names: <resource>/.default. The scopes of OpenID Connect, which MSAL adds to every request, mean nothing
// here. Source: Microsoft Learn, "Scopes and permissions in the Microsoft identity platform", the .default scope.
func readScope(scope string) (string, *refusal) {
	resource := ""
	for s := range strings.FieldsSeq(scope) {
		switch s {
		case "openid", "profile", "email", "offline_access":
			continue
		}
		r, ok := strings.CutSuffix(s, "/.default")
		switch {
		case !ok || r == "":
			return "", aadsts(1002012, http.StatusBadRequest, "invalid_scope", "The provided value for scope %s is not valid. "+
				"Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI).", printable(s))
		case resource != "" && resource != r:
			return "", badRequest(28000, "Provided value for the input parameter scope is not valid because it contains more than one resource. Scope %s is not valid.",
				printable(scope))
		}
		resource = r
	}
	if resource == "" {
		return "", aadsts(70011, http.StatusBadRequest, "invalid_scope", "The provided request must include a 'scope' input parameter. "+
			"The provided value for the input parameter 'scope' is not valid. The scope %s is not valid.", printable(scope))
	}
	return resource, nil
}

// isResource says whether a tenant has a resource for which there are tokens.
func (c *Cloud) isResource(t *tenant, resource string) bool {
	if t.environment.isResource(resource) {
		return true
	}
	host, ok := strings.CutPrefix(strings.TrimSuffix(resource, "/"), "https://")
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.accounts[host]
	return ok && s != nil && s.tenant.environment == t.environment
}

// authenticateClient proves that the caller may be the application.
func (c *Cloud) authenticateClient(ctx context.Context, form url.Values, app *application, call *journal.Call, now time.Time) *refusal {
	switch kind, assertion := form.Get("client_assertion_type"), form.Get("client_assertion"); {
	case form.Has("client_secret"):
		return badClient(7000215, "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, "+
			"not the client secret ID, for a secret added to app '%s'.", app.clientID).because("applications of the local Entra ID have no secrets")
	case assertion == "" && kind == "":
		return badClient(7000216, "'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' grant type.")
	case kind == "":
		return missingParameter("client_assertion_type")
	case assertion == "":
		return missingParameter("client_assertion")
	case kind != assertionType:
		return badRequest(90023, "Invalid STS request.").because("client_assertion_type is not " + assertionType)
	default:
		return c.judgeAssertion(ctx, assertion, app, call, now)
	}
}
