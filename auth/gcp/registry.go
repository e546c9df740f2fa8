package gcp

import (
	"context"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// registryUser is the user name for which Artifact Registry accepts an access token as password.
// Source: Artifact Registry, "Configure authentication to Artifact Registry for Docker: access
// token".
const registryUser = "oauth2accesstoken"

// NewRegistryToken implements [auth.RegistryProvider] without a further exchange: the access token
// is the password.
func (p *Provider) NewRegistryToken(_ context.Context, token auth.Token, request *auth.Request) (*auth.RegistryCredentials, error) {
	access, ok := token.(*Token)
	if !ok || access == nil {
		return nil, refusal.ForeignToken("a token of Google Cloud", token)
	}
	if err := p.checkRegistry(request.ImageRepository); err != nil {
		return nil, err
	}
	return &auth.RegistryCredentials{Username: registryUser, Password: access.Secret, ExpiresAt: access.ExpiresAt}, nil
}
