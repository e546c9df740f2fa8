package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Lives of the tokens that registries issue. Sources: Microsoft Learn, "Authenticate with Azure
// Container Registry" (three hours); the example tokens of Azure/acr, "AAD-OAuth.md" (75 minutes).
const (
	// RegistryRefreshLife is how long a registry's refresh token lives.
	RegistryRefreshLife = 3 * time.Hour
	// RegistryAccessLife is how long a registry's access token lives, even if the role assignment
	// behind it is withdrawn.
	RegistryAccessLife = 75 * time.Minute
)

// registryIssuer is the claim iss of all registries' tokens.
const registryIssuer = "Azure Container Registry"

// Kinds of registry tokens in the claim grant_type.
const (
	grantRefresh = "refresh_token"
	grantAccess  = "access_token"
)

// access is one resource and a set of actions on it. Scopes request access, and access tokens allow
// it. Source: Docker Registry v2 authentication, "Token authentication implementation".
type access struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}

// maxScopes is the maximum number of scopes in a request.
const maxScopes = 64

var errScopes = errors.New("too many scopes")

// readScopes reads scopes: repository:<name>:<action>,… and registry:catalog:*. It ignores all
// other scopes. The action "*" means all actions.
func readScopes(scopes []string) ([]access, error) {
	var out []access
	for s := range strings.FieldsSeq(strings.Join(scopes, " ")) {
		if len(out) == maxScopes {
			return nil, errScopes
		}
		parts := strings.Split(s, ":")
		if len(parts) != 3 {
			continue
		}
		a := access{Type: parts[0], Name: parts[1]}
		actions := strings.Split(parts[2], ",")
		switch {
		case a.Type == "registry" && a.Name == "catalog" && slices.Contains(actions, actionCatalog):
			a.Actions = []string{actionCatalog}
		case a.Type == "repository" && oci.IsName(a.Name):
			a.Actions = slices.DeleteFunc(repositoryActions(), func(known string) bool {
				return !slices.Contains(actions, known) && !slices.Contains(actions, "*")
			})
		}
		if len(a.Actions) > 0 {
			out = append(out, a)
		}
	}
	return out, nil
}

// granted returns the part of the wanted access that the application's roles allow. If the
// application presents an access token, that token must allow the access too.
func (r *registry) granted(who registryToken, wanted []access) []access {
	out := []access{}
	for _, a := range wanted {
		repository := a.Name
		if a.Type == "registry" {
			repository = ""
		}
		a.Actions = slices.DeleteFunc(slices.Clone(a.Actions), func(action string) bool {
			return !r.allows(who.app.clientID, repository, action) ||
				(who.grant == grantAccess && !allowed(who.access, a.Type, a.Name, action))
		})
		if len(a.Actions) > 0 {
			out = append(out, a)
		}
	}
	return out
}

// allowed reports whether the access list "all" includes an action on a resource.
func allowed(all []access, kind, name, action string) bool {
	return slices.ContainsFunc(all, func(a access) bool {
		return a.Type == kind && a.Name == name && slices.Contains(a.Actions, action)
	})
}

// registryToken is a verified token of a registry.
type registryToken struct {
	app    *application
	grant  string
	access []access
	ends   time.Time
}

// issueRefreshToken makes a refresh token of a registry.
func (c *Cloud) issueRefreshToken(r *registry, app *application, now time.Time) string {
	claims := registryClaims(r, app, now, now.Add(RegistryRefreshLife), grantRefresh)
	claims["tenant"] = r.tenant.id
	claims["permissions"] = map[string][]string{"actions": {"read", "write", "delete"}, "notActions": {}}
	return wire.Must(c.registryKeys().Mint(claims))
}

// issueRegistryAccess makes an access token of a registry.
func (c *Cloud) issueRegistryAccess(r *registry, app *application, all []access, now, ends time.Time) string {
	claims := registryClaims(r, app, now, ends, grantAccess)
	claims["access"] = all
	return wire.Must(c.registryKeys().Mint(claims))
}

func registryClaims(r *registry, app *application, now, ends time.Time, grant string) oidc.Claims {
	return oidc.Claims{
		"jti": wire.UUID(), "iss": registryIssuer, "aud": r.endpoint,
		"sub": app.objectID, "appid": app.clientID, "version": "1.0", "grant_type": grant,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": ends.Unix(), "roles": []string{},
	}
}

var errRegistryToken = errors.New("the token is not one of this registry")

// readRegistryToken verifies a token of a registry. It allows no clock difference, because the
// registry itself issued the token.
func (c *Cloud) readRegistryToken(r *registry, raw string, now time.Time) (registryToken, error) {
	token, err := oidc.Read(raw)
	if err != nil {
		return registryToken{}, err // errors of package oidc need no more context
	}
	if err := c.registryKeys().CheckSignature(token); err != nil {
		return registryToken{}, err // errors of package oidc need no more context
	}
	if token.Issuer != registryIssuer || !slices.Equal(token.Audience, []string{r.endpoint}) {
		return registryToken{}, fmt.Errorf("%w: it is for %q", errRegistryToken, token.Audience)
	}
	if err := token.CheckTime(now, 0); err != nil {
		return registryToken{}, err // errors of package oidc need no more context
	}
	clientID, _ := token.Claims["appid"].(string)
	c.mu.RLock()
	app := r.tenant.apps[clientID]
	c.mu.RUnlock()
	if app == nil || app.objectID != token.Subject {
		return registryToken{}, errPrincipal
	}
	out := registryToken{app: app, ends: token.Expiry}
	out.grant, _ = token.Claims["grant_type"].(string)
	if out.grant == grantAccess {
		encoded, err := json.Marshal(token.Claims["access"])
		if err == nil {
			err = json.Unmarshal(encoded, &out.access)
		}
		if err != nil {
			return registryToken{}, fmt.Errorf("%w: its access cannot be read", errRegistryToken)
		}
	}
	return out, nil
}
