package azure

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// assertionType is the only accepted type of client assertion. Source: RFC 7523 §2.2.
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// readEntra implements [service.Service] for Entra ID in an environment. A path is
// /<tenant>/<rest>.
func (c *Cloud) readEntra(r *service.Request, e *Environment) (service.Protocol, service.Handler) {
	tenantName, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var do func(r *service.Request, e *Environment, tenantName string) (any, *service.Refusal)
	methods := []string{http.MethodGet, http.MethodHead}
	switch rest {
	case "oauth2/v2.0/token":
		r.Call.Operation, do, methods = "Token", c.token, []string{http.MethodPost}
	case "v2.0/.well-known/openid-configuration", ".well-known/openid-configuration":
		r.Call.Operation, do = "OpenIDConfiguration", c.openIDConfiguration
	case "discovery/v2.0/keys", "discovery/keys":
		r.Call.Operation, do = "Keys", c.publishedKeys
	case "discovery/instance":
		r.Call.Operation, do = "InstanceDiscovery", c.instanceDiscovery
	default:
		no := aadsts(90023, http.StatusNotFound, "invalid_request", "Invalid STS request.").Because("the local Entra ID has no such path")
		return entraProtocol(e), no.Handle
	}
	return entraProtocol(e), func(r *service.Request) (service.Answer, *service.Refusal) {
		if !slices.Contains(methods, r.Method) {
			return nil, badRequest(900561, "The endpoint only accepts %s requests. Received a %s request.", methods[0], printable(r.Method))
		}
		answer, no := do(r, e, tenantName)
		if no != nil {
			return nil, no
		}
		r.Reply.Set("X-Ms-Request-Id", wire.UUID())
		return writeJSON(http.StatusOK, answer), nil
	}
}

// tenant finds a tenant of an environment by ID or domain.
func (c *Cloud) tenant(e *Environment, name string) (*tenant, *service.Refusal) {
	name = strings.ToLower(name)
	switch name {
	case "common", "organizations", "consumers":
		return nil, badRequest(50059,
			"No tenant-identifying information found in either the request or implied by any provided credentials.")
	}
	c.mu.RLock()
	t := cmp.Or(c.tenants[name], c.domains[name])
	c.mu.RUnlock()
	switch {
	case t != nil && t.environment == e:
		return t, nil
	case !uuidPattern.MatchString(name) && checkHost(name) != nil:
		return nil, badRequest(900023,
			"Specified tenant identifier '%s' is neither a valid DNS name, nor a valid external domain.", printable(name))
	}
	no := badRequest(90002,
		"Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. "+
			"Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant.", name)
	if t != nil {
		no.Reason = "the tenant is in " + t.environment.Name + ", the request came to " + e.Name
	}
	return nil, no
}

// printable replaces characters of a caller's text that must not occur in a message: control
// characters, single quotes and characters outside ASCII.
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

// token handles the client credentials flow with an assertion. Source: Microsoft Learn, "OAuth 2.0
// client credentials flow on the Microsoft identity platform", third case: access token request
// with a federated credential.
func (c *Cloud) token(r *service.Request, e *Environment, tenantName string) (any, *service.Refusal) {
	form, err := readForm(r)
	if err != nil {
		return nil, badForm(err)
	}
	r.Call.Role = form.Get("client_id")
	t, no := c.tenant(e, tenantName)
	if no != nil {
		return nil, no
	}
	req, no := readTokenRequest(form)
	if no != nil {
		return nil, no
	}
	r.Call.Resource = req.resource
	c.mu.RLock()
	app := t.apps[req.clientID]
	c.mu.RUnlock()
	if app == nil {
		return nil, aadsts(700016, http.StatusBadRequest, "unauthorized_client",
			"Application with identifier '%s' was not found in the directory '%s'. "+
				"This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. "+
				"You may have sent your authentication request to the wrong tenant.", printable(req.clientID), t.id)
	}
	if app.objectID == "" {
		return nil, badClient(7000229, "The client application %s is missing service principal in the tenant %s. "+
			"See instructions here: https://go.microsoft.com/fwlink/?linkid=2225119", app.clientID, t.id)
	}
	if no := c.authenticateClient(r, form, app); no != nil {
		return nil, no
	}
	r.Call.Principal = principalName(t, app)
	if !c.isResource(t, req.resource) {
		return nil, aadsts(500011, http.StatusBadRequest, "invalid_resource",
			"The resource principal named %s was not found in the tenant named %s. "+
				"This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. "+
				"You might have sent your authentication request to the wrong tenant.", printable(req.resource), t.id)
	}
	r.Reply.Set("Cache-Control", "no-store, no-cache")
	r.Reply.Set("Pragma", "no-cache")
	// Entra ID reports one second less than the token's lifetime.
	const life = int(EntraTokenLife/time.Second) - 1
	return tokenResponse{
		TokenType: "Bearer", ExpiresIn: life, ExtExpiresIn: life,
		AccessToken: c.issueAccessToken(t, app, req.resource, r.Now, EntraTokenLife),
	}, nil
}

func badForm(err error) *service.Refusal {
	if twice, ok := errors.AsType[*twiceError](err); ok {
		return badRequest(90100, "%s parameter is empty or not valid.", printable(twice.name)).Because(printable(twice.Error()))
	}
	return badRequest(90023, "Invalid STS request.").Because("the form cannot be read")
}

// tokenRequest is a request for a token.
type tokenRequest struct{ clientID, resource string }

func readTokenRequest(form url.Values) (tokenRequest, *service.Refusal) {
	for _, name := range []string{"grant_type", "client_id", "scope"} {
		if form.Get(name) == "" {
			return tokenRequest{}, missingParameter(name)
		}
	}
	if grant := form.Get("grant_type"); grant != "client_credentials" {
		return tokenRequest{}, aadsts(70003, http.StatusBadRequest, "unsupported_grant_type",
			"The app requested an unsupported grant type '%s'.", printable(grant))
	}
	resource, no := readScope(form.Get("scope"))
	return tokenRequest{clientID: strings.ToLower(form.Get("client_id")), resource: resource}, no
}

func missingParameter(name string) *service.Refusal {
	return badRequest(900144, "The request body must contain the following parameter: '%s'.", name)
}

// readScope returns the resource of a scope, which has the form <resource>/.default. It refuses
// more than one resource. It ignores the scopes of OpenID Connect, which MSAL adds to every
// request. Source: Microsoft Learn, "Scopes and permissions in the Microsoft identity platform",
// the .default scope.
func readScope(scope string) (string, *service.Refusal) {
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
				"Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI).",
				printable(s))
		case resource != "" && resource != r:
			return "", badRequest(28000,
				"Provided value for the input parameter scope is not valid because it contains more than one resource. Scope %s is not valid.",
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

// isResource reports whether Entra ID issues tokens for a resource to a tenant's applications.
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

// authenticateClient checks the assertion, which must prove that the caller is the application.
func (c *Cloud) authenticateClient(r *service.Request, form url.Values, app *application) *service.Refusal {
	switch kind, assertion := form.Get("client_assertion_type"), form.Get("client_assertion"); {
	case form.Has("client_secret"):
		return badClient(7000215,
			"Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, "+
				"not the client secret ID, for a secret added to app '%s'.",
			app.clientID).Because("applications of the local Entra ID have no secrets")
	case assertion == "" && kind == "":
		return badClient(7000216, "'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' grant type.")
	case kind == "":
		return missingParameter("client_assertion_type")
	case assertion == "":
		return missingParameter("client_assertion")
	case kind != assertionType:
		return badRequest(90023, "Invalid STS request.").Because("client_assertion_type is not " + assertionType)
	default:
		return c.judgeAssertion(r, assertion, app)
	}
}
