package source

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/transport"
)

// Access is how sources reach what they name, each as its own tenant: Secrets, connections and credentials. All fields that are
// exported are required.
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

	ended endings
}

// Connect prepares the way to the host[:port] that the object names, with the object's proxy and certificates.
func (a *Access) Connect(ctx context.Context, call Call, host string) (*Connection, error) {
	proxy, err := named(ctx, a, call, "spec.proxySecretRef", call.Identity.ProxySecretName, readProxy)
	if err != nil {
		return nil, err
	}
	certs, err := named(ctx, a, call, "spec.certSecretRef", call.Identity.CertSecretName, readCertificates)
	if err != nil {
		return nil, err
	}
	return &Connection{host: host, bound: call.Identity.Minted(), pool: a.Transports, proxy: proxy, certs: certs}, nil
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

// Mint gets the call's credential from its provider, and says as whom. Besides its errors are auth.GetToken's.
func (a *Access) Mint(ctx context.Context, call Call, conn *Connection, more ...auth.Option) (Login, error) {
	provider, err := a.Provider(call)
	if err != nil {
		return Login{}, err
	}
	options := append(a.Options(call, conn), more...)
	token, err := auth.GetToken(ctx, provider, options...)
	if err != nil {
		return Login{}, late(err)
	}
	login := Login{Token: token, Identity: &meta.Identity{Subject: call.Identity.Subject.String(), Provider: call.Identity.Provider}}
	if key, err := auth.Resolve(ctx, provider, options...); err == nil {
		login.key, login.Identity.CloudIdentity = key, key.Identity
	} else {
		login.Identity.CloudIdentity = a.cloudIdentity(ctx, provider, call.Identity.Subject)
	}
	return login, nil
}

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

// cloudIdentity is the identity of a subject that memory has not heard of yet, or empty where the provider does not tell.
func (a *Access) cloudIdentity(ctx context.Context, provider auth.Provider, subject auth.Subject) string {
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
