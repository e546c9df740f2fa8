package creds

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// Login is the credential for a registry. With the zero Login, requests are anonymous.
type Login struct {
	// Auth returns a user and a password, or a bearer token. It is for oci.Options.Auth. Auth is
	// nil if requests are anonymous, or if the credential is a client certificate.
	//
	// If the flags ask for a short-lived credential, Auth returns a new one before the current one
	// expires. So after HTTP 401, connect again with the same Auth: it may have a new credential. A
	// credential of the Docker configuration is not renewed.
	Auth authn.Authenticator
	// Certificate returns the newest client certificate for a TLS handshake. It is for
	// tls.Config.GetClientCertificate. Certificate is nil if the credential is not a client
	// certificate.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// ExpiresAt is when the first credential ends, UTC; zero if that is not known.
	ExpiresAt time.Time
	// ShortLived says that the credential was issued for this job, by this program or by a
	// credential helper of Docker. It must never be sent without TLS.
	ShortLived bool

	close func()
}

// Close closes the connection to the SPIFFE agent, if any. After that, no certificate is renewed.
func (l *Login) Close() {
	if l.close != nil {
		l.close()
	}
}

// Login gets the credential for a repository. Errors name the flag or the variable to correct, and
// hold no credential. Without flags, Login takes the credential of the Docker configuration. If
// there is none, Login returns the zero Login, and requests are anonymous.
func (f *Flags) Login(ctx context.Context, repository oci.Repository) (*Login, error) {
	switch {
	case !f.ShortLived():
		return dockerLogin(ctx, repository)
	case f.Creds == SpiffeCertificate:
		return f.spiffeLogin(ctx)
	}
	to := Receiver{Audiences: []string{repository.String()}, Image: repository.Host() + "/" + repository.Name()}
	shown := newRenewing(func(ctx context.Context) (Credential, error) { return f.IssueForRegistry(ctx, to) })
	first, err := shown.get(ctx)
	if err != nil {
		return nil, err
	}
	return &Login{Auth: shown, ExpiresAt: first.ExpiresAt, ShortLived: true}, nil
}

// dockerLogin gets the credential from the Docker configuration. Without that configuration, it
// reads Podman's.
func dockerLogin(ctx context.Context, repository oci.Repository) (*Login, error) {
	image, err := name.NewRepository(repository.Image(), name.StrictValidation)
	if err != nil {
		return nil, err
	}
	found, err := authn.Resolve(ctx, authn.DefaultKeychain, image)
	if err != nil {
		return nil, fmt.Errorf("the Docker configuration has no credential for %s that can be used: %w", repository.Host(), err)
	}
	if found == authn.Anonymous {
		return &Login{}, nil
	}
	config, err := authn.Authorization(ctx, found)
	if err != nil {
		return nil, err
	}
	return &Login{Auth: found, ShortLived: isShortLived(repository.Host(), *config)}, nil
}

// isShortLived reports whether a login of the Docker configuration seems to be short-lived. Such a
// login comes from a credential helper or from the command "lanyard token". isShortLived assumes
// this in two cases:
//   - A secret of the login is a JWT.
//   - The host is a cloud's registry.
func isShortLived(host string, login authn.AuthConfig) bool {
	for _, secret := range []string{login.Password, login.IdentityToken, login.RegistryToken} {
		if _, err := jwt.ParseSigned(secret, algorithms()); err == nil {
			return true
		}
	}
	return slices.ContainsFunc([]Kind{AWS, Azure, GCP}, func(cloud Kind) bool { return checkCloudHost(cloud, host) == nil })
}

// renewing is a credential that is issued again before it expires. It is safe for concurrent use.
type renewing struct {
	issue func(context.Context) (Credential, error)
	turn  chan struct{} // locks the fields below: a send locks, a receive unlocks

	current Credential
	renewAt time.Time
}

var _ authn.ContextAuthenticator = (*renewing)(nil)

func newRenewing(issue func(context.Context) (Credential, error)) *renewing {
	return &renewing{issue: issue, turn: make(chan struct{}, 1)}
}

// get returns the current credential. In the last fifth of the credential's lifetime, get issues a
// new one. Only one caller at a time issues a credential. The others wait, each until its own
// context ends.
func (r *renewing) get(ctx context.Context) (Credential, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return Credential{}, context.Cause(ctx)
	}
	now := time.Now()
	if now.Before(r.renewAt) {
		return r.current, nil
	}
	fresh, err := r.issue(ctx)
	if err != nil {
		return Credential{}, err
	}
	r.current, r.renewAt = fresh, now.Add(fresh.ExpiresAt.Sub(now)*4/5)
	return fresh, nil
}

// AuthorizationContext implements [authn.ContextAuthenticator]. It returns a JWT as the
// RegistryToken, and any other secret as the password. Package oci sends a RegistryToken as a
// bearer token. If the registry asks for a user and a password, the RegistryToken is sent as the
// password.
func (r *renewing) AuthorizationContext(ctx context.Context) (*authn.AuthConfig, error) {
	c, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	if c.claims == nil {
		return &authn.AuthConfig{Username: c.User, Password: c.Secret.Reveal()}, nil
	}
	return &authn.AuthConfig{Username: c.User, RegistryToken: c.Secret.Reveal()}, nil
}

// Authorization implements [authn.Authenticator]. Registry clients call AuthorizationContext
// instead.
func (r *renewing) Authorization() (*authn.AuthConfig, error) {
	return r.AuthorizationContext(context.Background()) //nolint:forbidigo // the interface has no context; every issue has a deadline
}
