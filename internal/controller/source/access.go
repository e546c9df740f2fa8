package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/transport"
)

// Access is how sources reach what they name, each as its own tenant: Secrets, connections and credentials. All fields are
// required.
type Access struct {
	// Live reads Secrets and ServiceAccounts, one by one and never from memory.
	Live client.Reader
	// Providers are the clouds, by name.
	Providers map[string]auth.Provider
	// Accounts know and prove ServiceAccounts.
	Accounts auth.Accounts
	// Cache keeps tokens.
	Cache auth.Cache
	// Observer hears of exchanges.
	Observer auth.Observer
	// Transports connect to what tenants name. Their dial function must refuse the addresses that tenants may not reach.
	Transports *transport.Pool
}

// Connect prepares the way to the host[:port] that the object names, with the object's proxy and certificates.
func (a *Access) Connect(ctx context.Context, call Call, host string) (*Connection, error) {
	c := &Connection{host: host, bound: call.Identity.Minted(), pool: a.Transports}
	if name := call.Identity.ProxySecretName; name != "" {
		const field = "spec.proxySecretRef"
		secret, err := a.Secret(ctx, field, call.Object.Namespace, name)
		if err != nil {
			return nil, err
		}
		if c.proxy, err = readProxy(field, secret); err != nil {
			return nil, err
		}
	}
	if name := call.Identity.CertSecretName; name != "" {
		const field = "spec.certSecretRef"
		secret, err := a.Secret(ctx, field, call.Object.Namespace, name)
		if err != nil {
			return nil, err
		}
		if c.certs, err = readCertificates(field, secret); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Provider is the cloud that the call's identity is of.
func (a *Access) Provider(call Call) (auth.Provider, error) {
	provider, ok := a.Providers[call.Identity.Provider]
	if !ok {
		return nil, fmt.Errorf("provider %q is in the rules and not among the providers", call.Identity.Provider)
	}
	return provider, nil
}

// Options are those of auth.GetToken for the call's identity, which must be minted: subject, cache, observer and the proxy of the
// connection. What the token is for comes besides, such as auth.WithImageRepository.
func (a *Access) Options(call Call, conn *Connection) []auth.Option {
	options := []auth.Option{
		call.Identity.Option(a.Accounts),
		auth.WithCache(a.Cache, call.Object),
		auth.WithObserver(a.Observer),
	}
	if conn.proxy != nil {
		options = append(options, auth.WithProxyURL(conn.proxy))
	}
	if call.RetryNow {
		options = append(options, auth.WithRetryNow())
	}
	return options
}

// Token mints the call's credential, and says as whom for the object's status. Besides its errors are auth.GetToken's.
func (a *Access) Token(ctx context.Context, call Call, conn *Connection, more ...auth.Option) (auth.Token, *meta.Identity, error) {
	provider, err := a.Provider(call)
	if err != nil {
		return nil, nil, err
	}
	options := append(a.Options(call, conn), more...)
	token, err := auth.GetToken(ctx, provider, options...)
	if err != nil {
		return nil, nil, late(err)
	}
	return token, &meta.Identity{
		Subject: call.Identity.Subject.String(), Provider: call.Identity.Provider,
		CloudIdentity: a.cloudIdentity(ctx, provider, call.Identity.Subject, options),
	}, nil
}

// Another is how long a token must live to be another one than this: what [Access.Token] is asked for, with
// [auth.WithMinRemaining], when a service has ended this one early.
func Another(token auth.Token) time.Duration { return token.GetDuration() + time.Second }

// late says what an end of ctx within [auth.GetToken] means.
func late(err error) error {
	if auth.CodeOf(err) != "" || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeUnreachable,
		Fix: "see whether the provider can be reached from the controller, or raise spec.timeout",
		Err: fmt.Errorf("no credential within spec.timeout: %w", err),
	}
}

// cloudIdentity is the identity that a token was just got for, or empty where the provider does not tell.
func (a *Access) cloudIdentity(ctx context.Context, provider auth.Provider, subject auth.Subject, options []auth.Option) string {
	key, err := auth.Resolve(ctx, provider, options...)
	if err == nil {
		return key.Identity
	}
	// Memory has not heard of the account yet.
	account, err := a.Accounts.Read(ctx, subject)
	if err != nil {
		return ""
	}
	identity, err := provider.GetIdentity(account)
	if err != nil {
		return ""
	}
	return identity
}
