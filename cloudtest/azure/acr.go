package azure

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Operations of a registry's token service.
const (
	opExchange       = "Exchange"
	opRefreshToken   = "GetAccessToken"
	opLoginToken     = "GetAccessTokenFromLogin"
	nullUser         = "00000000-0000-0000-0000-000000000000" // the user whose password is a token
	tokenNotAccepted = "token validation failed"
)

// registryTokenOperation is what a method and path ask of a registry's token service; empty for what it does not have.
func registryTokenOperation(method, path string) string {
	switch method + " " + path {
	case "POST /oauth2/exchange":
		return opExchange
	case "POST /oauth2/token":
		return opRefreshToken
	case "GET /oauth2/token":
		return opLoginToken
	}
	return ""
}

// serveRegistryTokens is a registry's token service. Source: Azure/acr, "AAD-OAuth.md" and "Token-BasicAuth.md".
func (c *Cloud) serveRegistryTokens(w http.ResponseWriter, r *http.Request, reg *registry, call *journal.Call) {
	call.Resource = reg.Host
	call.Operation = registryTokenOperation(r.Method, r.URL.Path)
	p := registryProtocol{}
	now, ok := c.begin(r.Context(), w, p, call)
	if !ok {
		return
	}
	var answer any
	var no *refusal
	switch call.Operation {
	case opExchange:
		answer, no = c.exchange(w, r, reg, call, now)
	case opRefreshToken:
		answer, no = c.postedToken(w, r, reg, call, now)
	case opLoginToken:
		answer, no = c.loginToken(r, reg, call, now)
	default: // its wrong methods are not found either
		no = &refusal{status: http.StatusNotFound, code: "NOT_FOUND", message: "not found"}
	}
	if no != nil {
		p.refuse(w, call, no)
		return
	}
	w.Header().Set("X-Ms-Correlation-Request-Id", wire.UUID())
	writeJSON(w, http.StatusOK, answer)
}

type refreshResponse struct {
	RefreshToken string `json:"refresh_token"`
}

type accessResponse struct {
	AccessToken string `json:"access_token"`
}

func badRegistryRequest(message string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: "BAD_REQUEST", message: message}
}

// readRegistryForm reads a form, of which only scope may be repeated.
func readRegistryForm(w http.ResponseWriter, r *http.Request, reg *registry) (url.Values, *refusal) {
	form, err := readForm(w, r, "scope")
	if err != nil {
		return nil, badRegistryRequest(printable(err.Error()))
	}
	return form, checkService(form, reg)
}

func checkService(form url.Values, reg *registry) *refusal {
	switch service := form.Get("service"); {
	case service == "":
		return badRegistryRequest("service is required")
	case service != reg.endpoint:
		return badRegistryRequest("service must be " + reg.endpoint)
	}
	return nil
}

// exchange gives a refresh token of the registry for an access token of Entra ID.
func (c *Cloud) exchange(w http.ResponseWriter, r *http.Request, reg *registry, call *journal.Call, now time.Time) (any, *refusal) {
	form, no := readRegistryForm(w, r, reg)
	if no != nil {
		return nil, no
	}
	if form.Get("grant_type") != grantAccess {
		return nil, badRegistryRequest("grant_type must be access_token").because("the local cloud does not have the deprecated exchanges of refresh tokens")
	}
	raw := form.Get("access_token")
	if raw == "" {
		return nil, badRegistryRequest("access_token is required")
	}
	token, no := c.registryCaller(raw, reg, call, now)
	if no != nil {
		return nil, no
	}
	if name := strings.ToLower(form.Get("tenant")); name != "" && name != token.tenant.id && !slices.Contains(token.tenant.domains, name) {
		return nil, unauthorized(nil).because("the parameter tenant is not the token's tenant " + token.tenant.id)
	}
	call.Principal = principalName(token.tenant, token.app)
	if !reg.isAssigned(token.app.clientID) {
		return nil, unauthorized(nil).because("the application has no role on the registry")
	}
	return refreshResponse{c.issueRefreshToken(reg, token.app, now)}, nil
}

// registryCaller proves an access token of Entra ID that is for a registry.
func (c *Cloud) registryCaller(raw string, reg *registry, call *journal.Call, now time.Time) (accessToken, *refusal) {
	refuse := func(reason string) (accessToken, *refusal) {
		return accessToken{}, &refusal{status: http.StatusUnauthorized, code: "UNAUTHORIZED", message: tokenNotAccepted, reason: reason}
	}
	if claimed, err := oidc.Read(raw); err == nil {
		call.Issuer, call.Subject, call.Audience = claimed.Issuer, claimed.Subject, strings.Join(claimed.Audience, ",")
	}
	token, err := c.readAccessToken(raw, now)
	if err != nil {
		return refuse(err.Error())
	}
	e := reg.tenant.environment
	arm := e.isResourceManager(token.audience)
	switch {
	case token.tenant != reg.tenant:
		return refuse("the token is of tenant " + token.tenant.id + ", the registry belongs to " + reg.tenant.id)
	case arm && reg.refuseARM:
		return refuse("the registry refuses tokens for Azure Resource Manager")
	case !arm && strings.TrimSuffix(token.audience, "/") != resourceRegistry:
		return refuse("the token is for " + token.audience)
	}
	return token, nil
}

// postedToken gives an access token for what was posted: a refresh token, or a token as a password.
func (c *Cloud) postedToken(w http.ResponseWriter, r *http.Request, reg *registry, call *journal.Call, now time.Time) (any, *refusal) {
	form, no := readRegistryForm(w, r, reg)
	if no != nil {
		return nil, no
	}
	switch form.Get("grant_type") {
	case "refresh_token":
		return c.registryAccess(form.Get("refresh_token"), []string{grantRefresh}, form["scope"], reg, call, now)
	case "password":
		raw := ""
		if form.Get("username") == nullUser {
			raw = form.Get("password")
		}
		return c.registryAccess(raw, passwords(), form["scope"], reg, call, now)
	}
	return nil, badRegistryRequest("grant_type must be refresh_token or password")
}

// passwords are the kinds of tokens that are a password of the null user. Source: Azure/acr, "Token-BasicAuth.md".
func passwords() []string { return []string{grantRefresh, grantAccess} }

// loginToken gives an access token for a token that is the password of the null user.
func (c *Cloud) loginToken(r *http.Request, reg *registry, call *journal.Call, now time.Time) (any, *refusal) {
	query, err := readValues(r.URL.RawQuery, "scope")
	if err != nil {
		return nil, badRegistryRequest(printable(err.Error()))
	}
	if no := checkService(query, reg); no != nil {
		return nil, no
	}
	user, password, ok := r.BasicAuth()
	if !ok || user != nullUser {
		password = ""
	}
	return c.registryAccess(password, passwords(), query["scope"], reg, call, now)
}

// registryAccess gives an access token, for a token of one of the kinds, for what of the scopes its bearer may do. Nothing of what was asked for is a refusal.
func (c *Cloud) registryAccess(raw string, kinds, scopes []string, reg *registry, call *journal.Call, now time.Time) (any, *refusal) {
	ask, err := readScopes(scopes)
	if err != nil {
		return nil, badRegistryRequest(err.Error())
	}
	call.Resource = strings.Join(scopes, " ")
	if raw == "" {
		return nil, unauthorized(ask).because("no token was sent, or none as the password of " + nullUser)
	}
	who, err := c.readRegistryToken(reg, raw, now)
	if err != nil {
		return nil, unauthorized(ask).because(err.Error())
	}
	if !slices.Contains(kinds, who.grant) {
		return nil, unauthorized(ask).because("the token is of the kind " + printable(who.grant))
	}
	call.Principal = principalName(reg.tenant, who.app)
	got := reg.granted(who, ask)
	if len(scopes) > 0 && len(got) == 0 {
		return nil, unauthorized(ask).because("no role assignment allows any of it")
	}
	ends := now.Add(RegistryAccessLife)
	if who.grant == grantAccess && who.ends.Before(ends) {
		ends = who.ends // an access token does not renew itself
	}
	return accessResponse{c.issueRegistryAccess(reg, who.app, got, now, ends)}, nil
}
