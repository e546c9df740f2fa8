package oci

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// showToken asks the registry how it wants to be authenticated to, and shows it the token so: as
// the password of the user if it asks for Basic alone, and otherwise as bearer token. The library
// would take the token only to registries that name a token server, and ask that server first.
func showToken(ctx context.Context, registry name.Registry, s *session, shown authn.AuthConfig) (http.RoundTripper, error) {
	agent := transport.NewUserAgent(s, userAgent)
	challenge, err := transport.Ping(ctx, registry, agent)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(challenge.Scheme, "basic") && shown.Username != "" {
		basic := authn.FromConfig(authn.AuthConfig{Username: shown.Username, Password: shown.RegistryToken})
		return transport.NewWithContext(ctx, registry, basic, agent, nil)
	}
	return bearer{next: agent, session: s, token: shown.RegistryToken, insecure: challenge.Insecure}, nil
}

// bearer shows a token to the registry, and to no host that the registry redirects to.
type bearer struct {
	next     http.RoundTripper
	session  *session
	token    string
	insecure bool // the registry has no TLS
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if !b.session.isHome(req.URL) {
		return b.next.RoundTrip(req)
	}
	req = req.Clone(req.Context()) // the caller's stays as it is (http.RoundTripper)
	if b.insecure {
		req.URL.Scheme = "http"
	}
	req.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(req)
}
