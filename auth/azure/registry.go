package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// registryUser is the user name that a registry expects if the password is one of its tokens.
// Source: Azure Container Registry, "Authenticate with a registry" (az acr login --expose-token).
const registryUser = "00000000-0000-0000-0000-000000000000"

// registryActions are the requested actions: pull, and list tags. The registry grants only the
// actions that the identity may take. Source: Azure Container Registry, "Permissions and role
// assignments overview".
const registryActions = "pull,metadata_read"

// NewRegistryToken implements [auth.RegistryProvider]. It exchanges the token of Microsoft Entra
// for a refresh token of the registry, which permits everything that the identity may do there.
// With [Config].WholeRegistry, the refresh token is the password. Otherwise NewRegistryToken
// exchanges the refresh token at once for an access token, which can only pull from one repository.
// The access token is then the password. All requests go to the image repository's host. Source:
// Azure Container Registry, "Integration with Azure Active Directory"
// (github.com/Azure/acr/blob/main/docs/AAD-OAuth.md).
func (p *Provider) NewRegistryToken(ctx context.Context, token auth.Token, request *auth.Request) (*auth.RegistryCredentials, error) {
	entra, ok := token.(*Token)
	if !ok || entra == nil {
		return nil, refusal.ForeignToken("a token of Microsoft Entra", token)
	}
	registry, err := p.registry(request.ImageRepository)
	if err != nil {
		return nil, err
	}
	form := url.Values{"grant_type": {"access_token"}, "service": {registry.Host}, "access_token": {entra.Secret.Reveal()}}
	if tenant := p.tenantOf(request); tenant != "" {
		form.Set("tenant", tenant)
	}
	refresh, err := p.registryToken(ctx, request, registry, "exchange", "refresh_token", form)
	if err != nil {
		return nil, err
	}
	if p.whole {
		return &auth.RegistryCredentials{Username: registryUser, Password: refresh.Secret, ExpiresAt: refresh.ExpiresAt}, nil
	}
	access, err := p.registryToken(ctx, request, registry, "token", "access_token", url.Values{
		"grant_type": {"refresh_token"}, "service": {registry.Host},
		"scope": {"repository:" + registry.Repository + ":" + registryActions}, "refresh_token": {refresh.Secret.Reveal()},
	})
	if err != nil {
		return nil, err
	}
	return &auth.RegistryCredentials{Username: registryUser, Password: access.Secret, ExpiresAt: access.ExpiresAt}, nil
}

// tenantOf returns the Entra tenant of the request's identity. For the controller's identity it is
// [Config].TenantID, which may be empty.
func (p *Provider) tenantOf(request *auth.Request) string {
	if id, err := parseIdentity(request.Key.Identity); err == nil {
		return id.tenant
	}
	return p.tenant
}

// registryToken gets a refresh token or an access token from the registry. The response has the
// token in the given field.
func (p *Provider) registryToken(
	ctx context.Context, request *auth.Request, registry *acrRegistry, operation, field string, form url.Values,
) (*Token, error) {
	where := "registry " + registry.Host
	asked := time.Now()
	got, err := p.post(ctx, request, "https://"+registry.Host+"/oauth2/"+operation, form)
	if err != nil {
		return nil, remote.Unanswered(ctx, err, where).Error(auth.StageRegistry, operation)
	}
	if got.Status != http.StatusOK {
		return nil, registryFailure(got, where, registry, request).Error(auth.StageRegistry, operation)
	}
	token, err := parseRegistryToken(got.Body, field, asked)
	if err != nil {
		return nil, remote.Invalid(where, "a token", err).Error(auth.StageRegistry, operation)
	}
	return token, nil
}

// parseRegistryToken returns the token in the registry's response. The token's lifetime is exp
// minus iat of its claims (RFC 7519 §4.1). The registry's clock sets both claims, so a wrong local
// clock does not change the lifetime. The lifetime counts from the time of the request (asked).
// Without iat, the lifetime is exp minus the time of the request. Errors quote nothing of the
// response.
func parseRegistryToken(body []byte, field string, asked time.Time) (*Token, error) {
	var answer map[string]json.RawMessage
	if json.Unmarshal(body, &answer) != nil {
		return nil, errors.New("it is not the JSON of a token answer")
	}
	var token string
	if json.Unmarshal(answer[field], &token) != nil || token == "" {
		return nil, errors.New("no " + field + " in it")
	}
	var claims struct {
		Begin *float64 `json:"iat"`
		End   *float64 `json:"exp"`
	}
	switch {
	case !remote.Payload(token, &claims):
		return nil, errors.New("its " + field + " is not a JWT")
	case claims.End == nil:
		return nil, errors.New("its " + field + " has no expiry (exp)")
	}
	life := *claims.End - float64(asked.Unix())
	if claims.Begin != nil {
		life = *claims.End - *claims.Begin
	}
	if life < 1 {
		return nil, errors.New("its " + field + " has already expired")
	}
	life = min(life, maxLifetime.Seconds())
	return &Token{Secret: auth.NewSecret(token), ExpiresAt: asked.Add(time.Duration(life) * time.Second).UTC()}, nil
}

// registryFailure returns the failure of a call to the registry. A refusal always concerns the
// identity, because the identity's token is the call's only credential.
func registryFailure(a remote.Answer, where string, registry *acrRegistry, request *auth.Request) remote.Failure {
	f := a.Refusal(where, health)
	if f.Code == auth.CodeThrottled || f.Code == auth.CodeUnavailable || !json.Valid(a.Body) {
		return f
	}
	identity := "the controller's own identity"
	if id, err := parseIdentity(request.Key.Identity); err == nil {
		identity = "application " + id.client
	}
	f.What = fmt.Sprintf("HTTP status %d", a.Status)
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		f.Code = auth.CodePermissionDenied
		if registry.Repository == "" {
			f.Fix = fmt.Sprintf("assign to %s the role AcrPull or AcrPush at registry %s", identity, registry.Name)
			break
		}
		f.Fix = fmt.Sprintf("assign to %s the role AcrPull at registry %s (or Container Registry Repository Reader with a condition for "+
			"repository %s, if the registry has permissions by repository)",
			identity, registry.Name, registry.Repository)
	case http.StatusNotFound:
		f.Code, f.Fix = auth.CodeRefused, "check that registry "+registry.Host+" exists"
	default:
		f.Code, f.Fix = auth.CodeRefused, "check that registry "+registry.Host+" is in the tenant of "+identity
	}
	return f
}
