package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// credential is what the registry is shown.
type credential struct {
	source.Login

	basic authn.Authenticator // nil for none
}

// credential gets what the call's identity comes to. With minRemaining a minted credential lives at least so long.
func (r Registries) credential(
	ctx context.Context, call source.Call, conn *source.Connection, repository oci.Repository, minRemaining time.Duration,
) (credential, error) {
	switch call.Identity.Source {
	case spec.Anonymous:
		return credential{}, nil
	case spec.StaticSecret:
		return r.fromSecret(ctx, call, repository)
	case spec.PullSecrets:
		return r.fromPullSecrets(ctx, call, repository)
	case spec.Cloud:
		return r.mint(ctx, call, conn, repository, minRemaining)
	default:
		return credential{}, fmt.Errorf("unknown source of credentials %q", call.Identity.Source)
	}
}

// mint gets a short-lived credential.
func (r Registries) mint(
	ctx context.Context, call source.Call, conn *source.Connection, repository oci.Repository, minRemaining time.Duration,
) (credential, error) {
	login, err := r.Access.Mint(ctx, call, conn,
		auth.WithImageRepository(repository.Host()+"/"+repository.Name()), auth.WithMinRemaining(minRemaining))
	if err != nil {
		return credential{}, err
	}
	issued, ok := login.Token.(*auth.RegistryCredentials)
	if !ok {
		return credential{}, fmt.Errorf("provider %s issued a %T instead of registry credentials", call.Identity.Provider, login.Token)
	}
	return credential{login, oci.Basic(issued.Username, issued.Password.Reveal())}, nil
}

// fromSecret reads spec.secretRef.
func (r Registries) fromSecret(ctx context.Context, call source.Call, repository oci.Repository) (credential, error) {
	const field = "spec.secretRef"
	namespace, name := call.Object.Namespace, call.Identity.SecretName
	secret, err := r.Access.Secret(ctx, field, namespace, name)
	if err != nil {
		return credential{}, err
	}
	basic, err := pullSecret(secret, repository)
	if err != nil {
		return credential{}, &source.SecretError{Field: field, Name: name, Fix: dockerRegistryFix, Err: err}
	}
	if basic == nil {
		return credential{}, &source.SecretError{
			Field: field, Name: name, Fix: dockerRegistryFix + " --docker-server=" + repository.Host(),
			Err: fmt.Errorf("it has no entry for %s", repository.Host()),
		}
	}
	return credential{source.StoredIn(namespace, name), basic}, nil
}
