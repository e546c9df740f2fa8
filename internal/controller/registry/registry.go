package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
)

// Registries gives access to the registries of sources.
type Registries struct {
	// Access makes the connections and gets the credentials. Required.
	Access *access.Access
	// MaxLayerBytes bounds the size of a layer as it is transferred. Zero means the default of
	// package oci.
	MaxLayerBytes int64
	// Challenges remembers which authentication each registry asks for; nil if nothing is
	// remembered.
	Challenges *oci.Challenges
}

// Ask connects to the repository as the call's identity, and calls the function work with the
// client. It gives the guarantees of [access.Access.WithCredential].
func (r Registries) Ask(
	ctx context.Context, call access.Call, status *meta.FetchStatus, repository oci.Repository, work func(context.Context, *oci.Client) error,
) error {
	conn, err := r.Access.Connect(ctx, call, repository.Host())
	if err != nil {
		return err
	}
	defer conn.Close()
	return r.Access.Use(ctx, call, conn, status, r.service(repository), func(login access.Login) error {
		if login.Token != nil && login.Credential.IsZero() {
			return fmt.Errorf("provider %s issued a %T, which a registry does not accept", call.Identity.Provider, login.Token)
		}
		client, err := oci.Connect(ctx, repository, oci.Options{
			Auth: authenticator(login), Transport: wire{conn.As(login)}, Insecure: call.Identity.Insecure, MaxLayerBytes: r.MaxLayerBytes,
			Caller: access.Caller(conn, login), Challenges: r.Challenges, Route: conn.Route(),
		})
		if err != nil {
			return err
		}
		return work(ctx, client)
	})
}

// service describes which credentials a registry accepts for a repository.
func (r Registries) service(repository oci.Repository) access.Service {
	return access.Service{
		Name:       "registry",
		ReadSecret: func(secret *corev1.Secret) (access.Credential, string, error) { return readSecret(secret, repository) },
		PullSecrets: func(ctx context.Context, call access.Call) (access.Login, error) {
			return r.fromPullSecrets(ctx, call, repository)
		},
		Purpose: func(source spec.Source) ([]auth.Option, bool) {
			switch source {
			case spec.Cloud:
				return []auth.Option{auth.WithImageRepository(repository.Host() + "/" + repository.Name())}, true
			case spec.Proof:
				return nil, true
			default:
				return nil, false
			}
		},
		// The list lacks spec.Cloud, because a cloud's registry takes a user and a password.
		Bearer:   []spec.Source{spec.Proof},
		Rejected: func(err error) bool { return origin.CodeOf(err) == origin.CodeUnauthorized },
	}
}

// defaultUser is the user name for registries that accept a token only in place of a password. A
// registry that finds the user in the token ignores this name.
const defaultUser = "token"

// authenticator returns the authenticator for the login's user and password, or for its bearer
// token; nil if the login has neither.
func authenticator(login access.Login) authn.Authenticator {
	basic, bearer := login.Credential.Basic, login.Credential.Bearer
	switch {
	case basic != nil:
		return authn.FromConfig(authn.AuthConfig{
			Username: basic.User, Password: basic.Password.Reveal(), IdentityToken: basic.Refresh.Reveal(),
		})
	case !bearer.IsZero():
		return authn.FromConfig(authn.AuthConfig{Username: defaultUser, RegistryToken: bearer.Reveal()})
	default:
		return nil
	}
}

// wire turns a [*access.DetourError] into an error of the registry. The registry is to blame: it
// asked for the credential to be sent to another host, or without TLS.
type wire struct{ conn http.RoundTripper }

func (w wire) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.conn.RoundTrip(req)
	if detour, ok := errors.AsType[*access.DetourError](err); ok {
		return nil, &origin.Error{Server: origin.Server{Kind: origin.Registry, Host: detour.Host}, Code: origin.CodeProtocol, Err: detour}
	}
	return resp, err
}
