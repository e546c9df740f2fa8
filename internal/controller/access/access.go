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

// Access is what reconcilers need to reach what objects name. All exported fields but
// AWSIdentities are required.
type Access struct {
	// Live reads Secrets and ServiceAccounts from the API server, one by one and never from a
	// cache.
	Live client.Reader
	// Provider returns the provider of a name: a cloud, or a type of spec.credential. An unknown name
	// is an error.
	Provider func(name string) (auth.Provider, error)
	// Accounts know and prove ServiceAccounts. If the cluster has a token server, they also know
	// WorkloadIdentities, and the objects themselves.
	Accounts auth.Accounts
	// AWSIdentities are the AWS identities as a namespace may use them; nil if the controller knows
	// none.
	AWSIdentities func(namespace string) auth.Accounts
	// Cache keeps tokens.
	Cache auth.Cache
	// Invalidate drops all tokens of a subject from Cache.
	Invalidate func(auth.Subject)
	// Observer hears of exchanges.
	Observer auth.Observer
	// Transports connect to the hosts that tenants name. Their dial function must refuse the
	// addresses that tenants may not reach.
	Transports *transport.Pool

	replaced lately[auth.Key]     // tokens that a service rejected
	renewed  lately[auth.Subject] // tokens that a tenant asked to renew
}

// Call is the permission for one reconciliation's calls.
type Call struct {
	// Object is the object, with its kind as people write it.
	Object auth.InvolvedObject
	// Self is the object as a token names it.
	Self auth.ObjectReference
	// Identity is whose credential the object gets.
	Identity spec.Identity
	// RetryNow passes failures that are remembered: somebody changed the object or asked for it
	// since.
	RetryNow bool
}

// Lent reports whether the identity is not the tenant's own but lent to it.
func (c Call) Lent() bool { return c.Identity.Subject.Lent() }

// explain adds to an error about a missing identity where the identity comes from, if the object
// does not name the subject. If the controller's own identity is missing, it may come later.
func (c Call) explain(err error) error {
	code := auth.CodeOf(err)
	missing := code == auth.CodeIdentityMissing
	switch {
	case c.Identity.Defaulted && (missing || code == auth.CodeSubjectNotFound):
		return fmt.Errorf("spec.serviceAccountName is not set, so --default-service-account applies: %w", err)
	case c.Lent() && (missing || code == auth.CodeIdentityInvalid):
		// The node may get an identity later, without a notice to the controller. A metadata
		// service that starts may also have no identity yet.
		return object.Retryable(err)
	}
	return err
}

// Subscribe calls changed when a subject has changed, for object.Dependencies. The token cache must
// have subscribed to the accounts before.
func (a *Access) Subscribe(changed func(object.Dependency)) {
	a.Accounts.Subscribe(func(s auth.Subject) { changed(object.DependencyOn(s)) })
}

// Renew drops the tokens of a subject, so that the next use of each gets a new one. Calls within
// [renewAfter] of one that did are answered by that one: many objects may ask at once for their
// common identity, and a tenant may ask as often as it likes.
func (a *Access) Renew(subject auth.Subject) {
	if a.renewed.allow(subject, time.Now(), renewAfter) {
		a.Invalidate(subject)
	}
}

// renewAfter is the least time between two renewals of a subject's tokens.
const renewAfter = 10 * time.Second

// Connect prepares the connection to the host[:port] that the object names, with the object's proxy
// and certificates.
func (a *Access) Connect(ctx context.Context, call Call, host string) (*Connection, error) {
	proxy, err := named(ctx, a, call, "spec.proxySecretRef", call.Identity.ProxySecretName, readProxy)
	if err != nil {
		return nil, err
	}
	read := readCertificates
	if call.Identity.Credential == spec.SpiffeCertificate {
		read = readAuthorities // the client certificate is the minted one
	}
	certs, err := named(ctx, a, call, "spec.certSecretRef", call.Identity.CertSecretName, read)
	if err != nil {
		return nil, err
	}
	return &Connection{
		host: host, bound: call.Identity.Minted(), insecure: call.Identity.Insecure, pool: a.Transports, proxy: proxy, certs: certs,
	}, nil
}

// Options returns the options of auth.GetToken for the call's identity, which must be minted:
// subject, audiences, cache, observer and the proxy of the connection, if the proof is exchanged.
// The token of a WorkloadIdentity that is itself the credential names the object that it is used
// for. The caller adds the token's purpose, such as auth.WithImageRepository.
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

// accounts know and prove the subject of the call. AWS identities are asked as the object's
// namespace may use them.
func (a *Access) accounts(call Call) auth.Accounts {
	if a.AWSIdentities != nil && slices.Contains(spec.AWSIdentityKinds(), call.Identity.Subject.Kind()) {
		return a.AWSIdentities(call.Object.Namespace)
	}
	return a.Accounts
}

// Mint gets the call's credential from its provider. The login shows no bearer token: only a
// [Service] decides that. An error with a code comes from auth.GetToken.
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

// credentialOf returns the credential that a token adds to a connection of any service. It is zero
// for a bearer token, and for a token with which an SDK signs requests.
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

// timedOut gives an end of ctx within [auth.GetToken] a code.
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
