package azure

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Lifetimes of the tokens that Entra ID issues. Sources: Microsoft Learn, "Configurable token
// lifetimes" (60 to 90 minutes) and "Managed identities: frequently asked questions" (24 hours).
// From a range, the local Entra ID takes the minimum. So a client that expects a longer
// lifetime fails.
const (
	// EntraTokenLife is the lifetime of an access token that is issued for a client assertion.
	EntraTokenLife = time.Hour
	// ManagedTokenLife is how long an access token of a managed identity lives.
	ManagedTokenLife = 24 * time.Hour
)

// newKeys makes the keys of a token service. The URL given to NewIssuer has no effect, because each
// token has its own claim iss.
func newKeys() *oidc.Issuer { return wire.Must(oidc.NewIssuer("https://sts.windows.net", oidc.RS256)) }

// accessToken is a verified access token of Entra ID for an application.
type accessToken struct {
	tenant   *tenant
	app      *application
	audience string
	roles    []string
}

// principalName returns the name by which the journal identifies an application.
func principalName(t *tenant, a *application) string { return a.clientID + "@" + t.id }

// issueAccessToken makes an access token for an application. The token is of version 1.0, which the
// resources of this cloud expect. Source: Microsoft Learn, "Access token claims reference".
func (c *Cloud) issueAccessToken(t *tenant, app *application, resource string, now time.Time, life time.Duration) string {
	issuer := t.environment.issuer(t.id)
	claims := oidc.Claims{
		"aud": resource, "iss": issuer, "idp": issuer,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(life).Unix(),
		"appid": app.clientID, "appidacr": "2", // 2: authenticated by a certificate or an assertion
		"idtyp": "app", "oid": app.objectID, "sub": app.objectID, "tid": t.id,
		"uti": base64.RawURLEncoding.EncodeToString(wire.Random(16)), "ver": "1.0",
	}
	if t.environment.isGraph(resource) && len(app.permissions) > 0 {
		claims["roles"] = app.permissions
	}
	return wire.Must(c.entraKeys().Mint(claims))
}

// errPrincipal is the error for a token of an unknown application.
var errPrincipal = errors.New("its application is not in the directory")

// readAccessToken verifies an access token and notes its issuer, subject and audience in the
// journal. The caller must check the audience and the tenant. The error wraps an error of package
// oidc, or errPrincipal.
func (c *Cloud) readAccessToken(r *service.Request, raw string) (accessToken, error) {
	token, err := oidc.Read(raw)
	if err != nil {
		return accessToken{}, err // errors of package oidc need no more context
	}
	r.Call.Issuer, r.Call.Subject, r.Call.Audience = token.Issuer, token.Subject, strings.Join(token.Audience, ",")
	if err := c.entraKeys().CheckSignature(token); err != nil {
		return accessToken{}, err // errors of package oidc need no more context
	}
	tenantID, _ := token.Claims["tid"].(string)
	clientID, _ := token.Claims["appid"].(string)
	c.mu.RLock()
	t := c.tenants[tenantID]
	app := cmp.Or(t, &tenant{}).apps[clientID]
	c.mu.RUnlock()
	switch {
	case t == nil || token.Issuer != t.environment.issuer(t.id):
		return accessToken{}, fmt.Errorf("%w: no tenant issues as %q", oidc.ErrIssuer, token.Issuer)
	case len(token.Audience) != 1:
		return accessToken{}, fmt.Errorf("%w: it has %d audiences", oidc.ErrMalformed, len(token.Audience))
	}
	if err := token.CheckTime(r.Now, tokenLeeway); err != nil {
		return accessToken{}, err // errors of package oidc need no more context
	}
	if app == nil || app.objectID != token.Subject {
		return accessToken{}, errPrincipal
	}
	out := accessToken{tenant: t, app: app, audience: token.Audience[0]}
	all, _ := token.Claims["roles"].([]any)
	for _, role := range all {
		name, _ := role.(string)
		out.roles = append(out.roles, name)
	}
	return out, nil
}
