package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Access gives reconcilers the Secrets, connections and credentials that their objects need. All
// exported fields except AWSIdentities are required.
type Access struct {
	// Live reads Secrets and ServiceAccounts from the API server, one by one and never from a
	// cache.
	Live client.Reader
	// Provider returns the provider for a name: the name of a cloud, or a type of spec.credential.
	// An unknown name is an error.
	Provider func(name string) (auth.Provider, error)
	// Accounts reads ServiceAccounts and gets proofs of their identity. If the cluster has a token
	// server, Accounts does the same for WorkloadIdentities, and for objects with an identity of
	// their own, such as OCIRepositories.
	Accounts auth.Accounts
	// AWSIdentities returns the AWS identities that a namespace may use; nil if the controller
	// supports no AWS identities.
	AWSIdentities func(namespace string) auth.Accounts
	// Cache stores tokens.
	Cache auth.Cache
	// Invalidate drops all tokens of a subject from Cache.
	Invalidate func(auth.Subject)
	// Observer is called for each exchange.
	Observer auth.Observer
	// Transports has the transports to the hosts that tenants choose. Their dial function must
	// refuse the addresses that tenants may not reach.
	Transports *transport.Pool

	replaced lately[auth.Key]     // rejected tokens that were recently replaced
	renewed  lately[auth.Subject] // subjects whose tokens were recently renewed on request
}

// Call says which object one reconciliation is for, and whose credential its calls use.
type Call struct {
	// Object identifies the object that is reconciled. Its Kind is the kind's name in manifests.
	Object auth.InvolvedObject
	// Self is the reference by which a token names the object.
	Self auth.ObjectReference
	// Identity says whose credential the object gets.
	Identity spec.Identity
	// RetryNow ignores cached failures, because the object was changed or a reconciliation was
	// requested.
	RetryNow bool
}

// Lent reports whether the identity is lent to the tenant, and not the tenant's own.
func (c Call) Lent() bool { return c.Identity.Subject.Lent() }

// explain extends an error about an identity. If the default ServiceAccount or its identity is
// missing, the error says that the default applies. An identity may be lent to the tenant
// ([Call.Lent]). If a lent identity is missing or invalid, the error becomes retryable.
func (c Call) explain(err error) error {
	code := auth.CodeOf(err)
	missing := code == auth.CodeIdentityMissing
	switch {
	case c.Identity.Defaulted && (missing || code == auth.CodeSubjectNotFound):
		return fmt.Errorf("spec.serviceAccountName is not set, so --default-service-account applies: %w", err)
	case c.Lent() && (missing || code == auth.CodeIdentityInvalid):
		// The controller's node may get an identity later, for example when a metadata service has
		// started. No event reports this, so the object must be retried.
		return object.Retryable(err)
	}
	return err
}

// Subscribe registers a function that is called for each subject that has changed. Use it as the
// field Subscribe of object.Dependencies. Subscribe the token cache to Accounts before you call
// Subscribe: subscribers are called in the order of their subscription. So the cache drops the
// subject's tokens first, and the function is called afterwards.
func (a *Access) Subscribe(changed func(object.Dependency)) {
	a.Accounts.Subscribe(func(s auth.Subject) { changed(object.DependencyOn(s)) })
}

// Renew drops the tokens of a subject, so that the next use gets a new token. It does nothing
// within [renewAfter] of the previous renewal of the subject. Otherwise many objects with one
// identity could request new tokens at once. A tenant could also request them often.
func (a *Access) Renew(subject auth.Subject) {
	if a.renewed.allow(subject, time.Now(), renewAfter) {
		a.Invalidate(subject)
	}
}

// renewAfter is the least time between two renewals of a subject's tokens.
const renewAfter = 10 * time.Second

// Connect prepares the connection to the host[:port] of the object's server, with the object's
// proxy and certificates.
func (a *Access) Connect(ctx context.Context, call Call, host string) (*Connection, error) {
	proxy, err := named(ctx, a, call, "spec.proxySecretRef", call.Identity.ProxySecretName, readProxy)
	if err != nil {
		return nil, err
	}
	read := readCertificates
	if call.Identity.Credential == spec.SpiffeCertificate {
		read = readAuthorities // the client certificate is an X.509-SVID
	}
	certs, err := named(ctx, a, call, "spec.certSecretRef", call.Identity.CertSecretName, read)
	if err != nil {
		return nil, err
	}
	return &Connection{
		host: host, bound: call.Identity.Minted(), insecure: call.Identity.Insecure, pool: a.Transports, proxy: proxy, certs: certs,
	}, nil
}

// Options returns the options of auth.GetToken for the call's identity. The identity must have a
// minted credential. The caller adds the token's purpose, such as auth.WithImageRepository.
//
// If the credential is spec.WorkloadIdentityToken, the object's server gets the WorkloadIdentity's
// own token. The options then make this token name the call's object. If the credential comes from
// an exchange, the options include the connection's proxy for the exchange.
func (a *Access) Options(call Call, conn *Connection) []auth.Option {
	options := []auth.Option{
		call.Identity.Option(a.accounts(call)),
		auth.WithTenant(call.Object.Namespace),
		auth.WithCache(a.Cache, call.Object),
		auth.WithObserver(a.Observer),
	}
	if call.Identity.Credential == spec.WorkloadIdentityToken {
		options = append(options, auth.WithContextObject(call.Self))
	}
	if conn.proxy != nil && call.Identity.Source != spec.Proof {
		options = append(options, auth.WithProxyURL(conn.proxy))
	}
	if call.RetryNow {
		options = append(options, auth.WithRetryNow())
	}
	return options
}

// accounts returns the Accounts for the subject of the call. For an AWS identity, they are limited
// to the identities that the object's namespace may use.
func (a *Access) accounts(call Call) auth.Accounts {
	if a.AWSIdentities != nil && slices.Contains(spec.AWSIdentityKinds(), call.Identity.Subject.Kind()) {
		return a.AWSIdentities(call.Object.Namespace)
	}
	return a.Accounts
}

// Mint gets the call's credential from its provider. The returned Login's Credential has no bearer
// token: a [Service] decides whether its client sends the token. Errors of a.Provider and of
// auth.GetToken may have a code (see [auth.CodeOf]).
func (a *Access) Mint(ctx context.Context, call Call, conn *Connection, more ...auth.Option) (Login, error) {
	provider, err := a.Provider(cmp.Or(string(call.Identity.Credential), call.Identity.Provider))
	if err != nil {
		return Login{}, err
	}
	options := append(a.Options(call, conn), more...)
	token, key, err := auth.GetTokenAndKey(ctx, provider, options...)
	if err != nil {
		return Login{}, timedOut(err)
	}
	return Login{
		Identity: &meta.Identity{Subject: key.Subject.String(), Provider: call.Identity.Provider, CloudIdentity: key.Identity},
		Token:    token, Credential: credentialOf(token), key: key,
	}, nil
}

// credentialOf returns a token's user name and password, or its client certificate. For any other
// token, such as a bearer token, it returns the zero Credential.
func credentialOf(token auth.Token) Credential {
	switch issued := token.(type) {
	case *auth.RegistryCredentials:
		return Credential{Basic: &Basic{User: issued.Username, Password: issued.Password}}
	case *auth.Certificate:
		client := issued.TLS()
		return Credential{Certificate: &client}
	default:
		return Credential{}
	}
}

// timedOut adds [auth.CodeUnreachable] to an error of [auth.GetToken] if the error has no code,
// and its cause is a passed deadline.
func timedOut(err error) error {
	if auth.CodeOf(err) != "" || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeUnreachable,
		Fix: "check whether the controller can reach the provider, or raise spec.timeout",
		Err: fmt.Errorf("no credential within spec.timeout: %w", err),
	}
}
