package access

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Service describes one sort of server: which credentials it accepts, and the purpose of its
// tokens.
type Service struct {
	// Name is the server's name in error texts, such as "registry". Required.
	Name string
	// ReadSecret returns the credential in the Secret of spec.secretRef. If the Secret has no
	// credential, err says why, and fix says what to do. Required.
	ReadSecret func(secret *corev1.Secret) (shown Credential, fix string, err error)
	// PullSecrets makes a login from the image pull secrets of the call's ServiceAccount. The field
	// is nil if the server accepts no such secrets.
	PullSecrets func(ctx context.Context, call Call) (Login, error)
	// Purpose returns the options of auth.GetToken that say what a token is for. ok is false if the
	// server accepts no tokens of the source. Required.
	Purpose func(source spec.Source) (options []auth.Option, ok bool)
	// Bearer lists the sources whose tokens the service's client sends as bearer tokens (RFC 6750).
	// Tokens of other sources go to an SDK, which signs with them or sends them itself. If Bearer
	// has spec.Cloud, the server must belong to the cloud that issues the tokens. Any other server
	// could use such a token at all services of the cloud.
	Bearer []spec.Source
	// Rejected reports whether an error means that the server rejected the credential. The error
	// comes from the function that [Access.Use] calls. Required.
	Rejected func(err error) bool
}

// Use logs in at a server as the call's identity, and calls work() with the login. It gives the
// guarantees of [Access.WithCredential].
func (a *Access) Use(ctx context.Context, call Call, conn *Connection, status *meta.FetchStatus, service Service, work func(Login) error) error {
	login := func(minRemaining time.Duration) (Login, error) {
		return a.login(ctx, call, conn, service, minRemaining)
	}
	return call.explain(a.WithCredential(conn, status, login, work, service.Rejected))
}

// login gets the credential from the source of the call's identity. A minted credential is valid
// for at least minRemaining.
func (a *Access) login(ctx context.Context, call Call, conn *Connection, service Service, minRemaining time.Duration) (Login, error) {
	source := call.Identity.Source
	switch source {
	case spec.Anonymous:
		return Login{}, nil
	case spec.StaticSecret:
		return a.secretLogin(ctx, call, service)
	case spec.PullSecrets:
		if service.PullSecrets != nil {
			return service.PullSecrets(ctx, call)
		}
	case spec.Cloud, spec.STS, spec.Proof:
		if purpose, ok := service.Purpose(source); ok {
			login, err := a.Mint(ctx, call, conn, append([]auth.Option{auth.WithMinRemaining(minRemaining)}, purpose...)...)
			if issued, ok := login.Token.(auth.BearerToken); ok && slices.Contains(service.Bearer, source) {
				login.Credential.Bearer = issued.Bearer()
			}
			return login, err
		}
	case spec.Later: // not expected: spec.ResolveAt must choose the source first
	}
	return Login{}, fmt.Errorf("a %s does not take credentials of source %q", service.Name, source)
}

// secretLogin returns the login with the credential in the Secret of spec.secretRef.
func (a *Access) secretLogin(ctx context.Context, call Call, service Service) (Login, error) {
	const field = "spec.secretRef"
	namespace, name := call.Object.Namespace, call.Identity.SecretName
	secret, err := a.Secret(ctx, field, namespace, name)
	if err != nil {
		return Login{}, err
	}
	shown, fix, err := service.ReadSecret(secret)
	if err != nil {
		return Login{}, &object.SecretError{Field: field, Name: name, Fix: fix, Err: err}
	}
	return StaticLogin("secret:"+namespace+":"+name, shown), nil
}
