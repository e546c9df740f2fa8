package oci

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// showToken asks the registry for its challenge. It returns a transport that sends the token
// shown.RegistryToken to the registry. No token server is asked. If the challenge is Basic and
// shown has a user name, the token is sent as the user's password. Otherwise it is sent as a bearer
// token.
//
// The transport of go-containerregistry itself would answer a Basic challenge with a bearer token.
// It would refuse a Bearer challenge that does not name a token server.
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

// bearer sends a token to the registry, but not to hosts that the registry redirects to.
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
	req = req.Clone(req.Context()) // do not change the caller's request (http.RoundTripper)
	if b.insecure {
		req.URL.Scheme = "http"
	}
	req.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(req)
}
