package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// login logs in as the call's identity. A minted credential lives at least minRemaining.
func (r Registries) login(
	ctx context.Context, call access.Call, conn *access.Connection, repository oci.Repository, minRemaining time.Duration,
) (access.Login, error) {
	switch call.Identity.Source {
	case spec.Anonymous:
		return access.Login{}, nil
	case spec.StaticSecret:
		return r.fromSecret(ctx, call, repository)
	case spec.PullSecrets:
		return r.fromPullSecrets(ctx, call, repository)
	case spec.Cloud:
		return r.mint(ctx, call, conn, auth.WithMinRemaining(minRemaining),
			auth.WithImageRepository(repository.Host()+"/"+repository.Name()))
	case spec.Proof:
		return r.mint(ctx, call, conn, auth.WithMinRemaining(minRemaining))
	default:
		return access.Login{}, fmt.Errorf("unknown source of credentials %q", call.Identity.Source)
	}
}

// mint gets a short-lived credential.
func (r Registries) mint(ctx context.Context, call access.Call, conn *access.Connection, purpose ...auth.Option) (access.Login, error) {
	login, err := r.Access.Mint(ctx, call, conn, purpose...)
	if err == nil && login.Credential.IsZero() {
		err = fmt.Errorf("provider %s issued a %T, which a registry does not accept", call.Identity.Provider, login.Token)
	}
	if err != nil {
		return access.Login{}, err
	}
	return login, nil
}

// fromSecret reads spec.secretRef.
func (r Registries) fromSecret(ctx context.Context, call access.Call, repository oci.Repository) (access.Login, error) {
	const field = "spec.secretRef"
	namespace, name := call.Object.Namespace, call.Identity.SecretName
	secret, err := r.Access.Secret(ctx, field, namespace, name)
	if err != nil {
		return access.Login{}, err
	}
	found, err := pullSecret(secret, repository)
	if err != nil {
		return access.Login{}, &object.SecretError{Field: field, Name: name, Fix: dockerRegistryFix, Err: err}
	}
	if found == nil {
		return access.Login{}, &object.SecretError{
			Field: field, Name: name, Fix: dockerRegistryFix + " --docker-server=" + repository.Host(),
			Err: fmt.Errorf("it has no entry for %s", repository.Host()),
		}
	}
	return access.SecretLogin(namespace, name, *found), nil
}
