package azure

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

const (
	nullUser         = "00000000-0000-0000-0000-000000000000" // the user whose password is a token
	tokenNotAccepted = "token validation failed"
)

// readRegistryTokens implements [service.Service] for a registry's token service. Source:
// Azure/acr, "AAD-OAuth.md" and "Token-BasicAuth.md".
func (c *Cloud) readRegistryTokens(r *service.Request, reg *registry) (service.Protocol, service.Handler) {
	var give func(*service.Request, *registry) (any, *service.Refusal)
	switch r.Method + " " + r.URL.Path {
	case "POST /oauth2/exchange":
		r.Call.Operation, give = "Exchange", c.exchange
	case "POST /oauth2/token":
		r.Call.Operation, give = "GetAccessToken", c.postedToken
	case "GET /oauth2/token":
		r.Call.Operation, give = "GetAccessTokenFromLogin", c.loginToken
	default: // a known path with a wrong method gets 404 too
		return registryProtocol(), service.Refuse(http.StatusNotFound, "NOT_FOUND", "not found").Handle
	}
	return registryProtocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
		answer, no := give(r, reg)
		if no != nil {
			return nil, no
		}
		return writeRegistryJSON(r, http.StatusOK, answer), nil
	}
}

func badRegistryRequest(message string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "BAD_REQUEST", message)
}

// readRegistryForm reads a form. Only the parameter scope may be repeated.
func readRegistryForm(r *service.Request, reg *registry) (url.Values, *service.Refusal) {
	form, err := readForm(r, "scope")
	if err != nil {
		return nil, badRegistryRequest(printable(err.Error()))
	}
	return form, checkService(form, reg)
}

func checkService(form url.Values, reg *registry) *service.Refusal {
	switch asked := form.Get("service"); {
	case asked == "":
		return badRegistryRequest("service is required")
	case asked != reg.endpoint:
		return badRegistryRequest("service must be " + reg.endpoint)
	}
	return nil
}

// exchange returns a refresh token of the registry in exchange for an access token of Entra ID.
func (c *Cloud) exchange(r *service.Request, reg *registry) (any, *service.Refusal) {
	form, no := readRegistryForm(r, reg)
	if no != nil {
		return nil, no
	}
	if form.Get("grant_type") != grantAccess {
		return nil, badRegistryRequest("grant_type must be access_token").
			Because("the local cloud does not have the deprecated exchanges of refresh tokens")
	}
	raw := form.Get("access_token")
	if raw == "" {
		return nil, badRegistryRequest("access_token is required")
	}
	token, no := c.registryCaller(r, reg, raw)
	if no != nil {
		return nil, no
	}
	if name := strings.ToLower(form.Get("tenant")); name != "" && name != token.tenant.id && !slices.Contains(token.tenant.domains, name) {
		return nil, unauthorized(nil).Because("the parameter tenant is not the token's tenant " + token.tenant.id)
	}
	r.Call.Principal = principalName(token.tenant, token.app)
	if !reg.isAssigned(token.app.clientID) {
		return nil, unauthorized(nil).Because("the application has no role on the registry")
	}
	return map[string]string{"refresh_token": c.issueRefreshToken(reg, token.app, r.Now)}, nil
}

// registryCaller verifies an access token of Entra ID, and checks that the token's tenant and
// audience fit the registry.
func (c *Cloud) registryCaller(r *service.Request, reg *registry, raw string) (accessToken, *service.Refusal) {
	refuse := func(reason string) (accessToken, *service.Refusal) {
		return accessToken{}, service.Refuse(http.StatusUnauthorized, "UNAUTHORIZED", tokenNotAccepted).Because(reason)
	}
	token, err := c.readAccessToken(r, raw)
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

// postedToken issues an access token in exchange for the token in a posted form. The posted token
// is a refresh token, or a token that is sent as a password.
func (c *Cloud) postedToken(r *service.Request, reg *registry) (any, *service.Refusal) {
	form, no := readRegistryForm(r, reg)
	if no != nil {
		return nil, no
	}
	switch form.Get("grant_type") {
	case "refresh_token":
		return c.registryAccess(r, reg, form.Get("refresh_token"), []string{grantRefresh}, form["scope"])
	case "password":
		raw := ""
		if form.Get("username") == nullUser {
			raw = form.Get("password")
		}
		return c.registryAccess(r, reg, raw, passwords(), form["scope"])
	}
	return nil, badRegistryRequest("grant_type must be refresh_token or password")
}

// passwords returns the kinds of tokens that a caller with the user name nullUser may send as a
// password. Source: Azure/acr, "Token-BasicAuth.md".
func passwords() []string { return []string{grantRefresh, grantAccess} }

// loginToken exchanges a token of the registry for a new access token. The caller sends the old
// token as the password of the user nullUser.
func (c *Cloud) loginToken(r *service.Request, reg *registry) (any, *service.Refusal) {
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
	return c.registryAccess(r, reg, password, passwords(), query["scope"])
}

// registryAccess exchanges a token of one of the given kinds for an access token. The new token
// allows those scopes that the bearer of the old token may use. If the bearer may use none of the
// scopes, registryAccess refuses.
func (c *Cloud) registryAccess(r *service.Request, reg *registry, raw string, kinds, scopes []string) (any, *service.Refusal) {
	ask, err := readScopes(scopes)
	if err != nil {
		return nil, badRegistryRequest(err.Error())
	}
	r.Call.Resource = strings.Join(scopes, " ")
	if raw == "" {
		return nil, unauthorized(ask).Because("no token was sent, or none as the password of " + nullUser)
	}
	who, err := c.readRegistryToken(reg, raw, r.Now)
	if err != nil {
		return nil, unauthorized(ask).Because(err.Error())
	}
	if !slices.Contains(kinds, who.grant) {
		return nil, unauthorized(ask).Because("the token is of the kind " + printable(who.grant))
	}
	r.Call.Principal = principalName(reg.tenant, who.app)
	got := reg.granted(who, ask)
	if len(scopes) > 0 && len(got) == 0 {
		return nil, unauthorized(ask).Because("no role assignment allows any of it")
	}
	ends := r.Now.Add(RegistryAccessLife)
	if who.grant == grantAccess && who.ends.Before(ends) {
		ends = who.ends // an access token cannot extend its own life
	}
	return map[string]string{"access_token": c.issueRegistryAccess(reg, who.app, got, r.Now, ends)}, nil
}
