package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Options are all options of one call. Callers set them with the With functions; providers read
// them.
type Options struct {
	// Subject is the subject that the token is for.
	Subject Subject
	// Accounts reads the subject's account, and makes the proof that is exchanged for a token. If
	// Accounts is nil, the token comes from the program's own environment.
	Accounts Accounts
	// Cache stores tokens; nil for no cache.
	Cache Cache
	// InvolvedObject is the object for which the cache's metrics count the call.
	InvolvedObject InvolvedObject
	// Observer is called after every stage; nil for none.
	Observer Observer
	// Tenant is the namespace that asks for the token of a lent subject (see [WithTenant]).
	Tenant string
	// Scopes limit what the token may do, in the provider's own syntax.
	Scopes List
	// Audiences are the receivers of a JWT that serves as the credential without an exchange (see
	// [WithAudiences]).
	Audiences List
	// ContextObject is the object that the token is used for; zero for none.
	ContextObject ObjectReference
	// ImageRepository is the repository that the registry credentials are for: host/path without
	// scheme, tag or digest.
	ImageRepository string
	// STSEndpoint is the https URL of the security token service; empty for the provider's own
	// service.
	STSEndpoint string
	// STSRegion is the region of the security token service; empty if the provider decides.
	STSRegion string
	// ProxyURL is the HTTP proxy for all calls of the exchange; nil for the provider's own
	// transport.
	ProxyURL *url.URL
	// MinRemaining is the least life that a cached token must have left; zero means the cache's own
	// minimum.
	MinRemaining time.Duration
	// RetryNow repeats the exchange even if the cache remembers a failure (see [WithRetryNow]).
	RetryNow bool

	proxyKey string
	err      error
}

// Format prints only the subject, for every verb, because the proxy's URL may hold a password.
func (o Options) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, "options for "+o.Subject.String())
}

// Option sets one or more [Options] of a call. An Option may be used for any number of calls.
type Option func(*Options)

// InvolvedObject is the object that a token is requested for. It appears in metrics and has no
// influence on the token.
type InvolvedObject struct {
	// Kind, Namespace and Name identify the object.
	Kind, Namespace, Name string
	// Operation says what the object needs the token for: reconcile, verify and so on.
	Operation string
}

// Cache stores tokens; package auth/cache has the implementation.
type Cache interface {
	// Get returns key's token if the cache can serve this token without any work. It does no I/O
	// and does not allocate. A token with less than minRemaining of life left is not served; zero
	// means the cache's own minimum.
	Get(key Key, minRemaining time.Duration, involved InvolvedObject) (Token, bool)
	// Fetch returns a token, and the key that the token was issued for. This key differs from the
	// given key if the subject has changed. If the cache has no token that it may serve, Fetch
	// calls the given function. If several callers ask for one key, one of them fetches and the
	// others wait for the result, each until its own ctx ends. The function's context outlives the
	// caller's, and has its own deadline.
	Fetch(ctx context.Context, key Key, options FetchOptions, fetch func(context.Context) (Fetched, error)) (Fetched, error)
}

// FetchOptions say which cached results [Cache.Fetch] may serve, and which tenant a new token is
// charged to.
type FetchOptions struct {
	// Tenant is the namespace that the cache charges: the token and the exchange count towards the
	// limits of this namespace. It is the subject's namespace or, for a lent subject, the namespace
	// that borrows the subject. So the namespaces that borrow one identity do not share one limit.
	// Empty for the program itself.
	Tenant string
	// MinRemaining is the least life that a cached token must have left; zero means the cache's own
	// minimum.
	MinRemaining time.Duration
	// RetryNow ignores a remembered failure.
	RetryNow bool
	// InvolvedObject is the object for which the metrics count the call.
	InvolvedObject InvolvedObject
}

// Fetched is the result of a fetch.
type Fetched struct {
	// Token is the token that was issued. It is never nil.
	Token Token
	// Key is the key of the token that was issued. A cache stores the token only if Key equals the
	// requested key. The keys differ if a change of the subject had not reached the
	// [AccountReader] yet.
	Key Key
}

// Observer measures the stages of calls. Package auth/cache makes one for Prometheus.
type Observer interface {
	// ObserveStage is called after a stage, with its outcome: "success" or the error's [Code].
	ObserveStage(provider string, stage Stage, outcome string, took time.Duration)
}

// WithServiceAccount asks for a token for the ServiceAccount with this namespace and name. The
// names follow the rules of [ServiceAccount].
func WithServiceAccount(namespace, name string, accounts Accounts) Option {
	subject, err := ServiceAccount(namespace, name)
	if err != nil {
		return fail(err)
	}
	return WithSubject(subject, accounts)
}

// WithSubject asks for a token for the subject. The argument accounts is required: it reads the
// subject's account, and makes a proof of the subject.
func WithSubject(subject Subject, accounts Accounts) Option {
	if accounts == nil {
		return fail(withoutProver(subject))
	}
	return func(o *Options) { o.Subject, o.Accounts = subject, accounts }
}

// WithController asks for a token of the calling program's own identity. The caller must decide
// whether a tenant's object may have that token; package auth/spec makes this decision.
func WithController() Option {
	return func(o *Options) { o.Subject, o.Accounts = Controller(), nil }
}

// WithTenant sets the namespace that asks for the token of a lent subject ([Subject.Lent]). The
// token and the exchange then count towards the limits of that namespace in the cache. Without this
// option, they count towards the limits of the program itself. For a subject with a namespace, the
// limits are always those of the subject's namespace.
func WithTenant(namespace string) Option {
	return func(o *Options) { o.Tenant = namespace }
}

// WithCache stores tokens in the cache. The cache's metrics count the call for the involved object,
// unless that object is the zero value.
func WithCache(cache Cache, involved InvolvedObject) Option {
	return func(o *Options) { o.Cache, o.InvolvedObject = cache, involved }
}

// WithObserver calls the observer after every stage.
func WithObserver(observer Observer) Option {
	return func(o *Options) { o.Observer = observer }
}

// WithScopes limits the token to the given scopes, in the provider's own syntax. An empty scope is
// an error.
func WithScopes(scopes ...string) Option {
	list, err := NewList(scopes...)
	if err != nil {
		return fail(&Error{Stage: StageSubject, Code: CodeOptionInvalid, Fix: "leave out empty scopes", Err: fmt.Errorf("scopes: %w", err)})
	}
	return func(o *Options) { o.Scopes = list }
}

// WithAudiences sets the audiences of a token whose proof is itself the credential, such as a JWT
// that a registry accepts as a bearer token. An empty audience is an error. For a provider that
// exchanges the proof, audiences are an error too.
func WithAudiences(audiences ...string) Option {
	list, err := NewList(audiences...)
	if err != nil {
		return fail(&Error{Stage: StageSubject, Code: CodeOptionInvalid, Fix: "leave out empty audiences", Err: fmt.Errorf("audiences: %w", err)})
	}
	return func(o *Options) { o.Audiences = list }
}

// WithContextObject sets the object that the token is used for. The token then names this object,
// and the cache returns it only for this object. A provider whose tokens cannot name an object
// refuses the option.
func WithContextObject(object ObjectReference) Option {
	return func(o *Options) { o.ContextObject = object }
}

// WithImageRepository asks for [*RegistryCredentials] for the repository, given as host/path
// without scheme, tag or digest. Anything else is an error with [CodeOptionInvalid]. A caller with
// an image must cut off tag and digest, because credentials are for repositories. For a provider
// whose credentials are for a whole registry, the host alone is enough.
func WithImageRepository(repository string) Option {
	if err := checkImageRepository(repository); err != nil {
		return fail(err)
	}
	return func(o *Options) { o.ImageRepository = repository }
}

// checkImageRepository refuses a repository with a scheme, a tag or a digest, and an empty one.
// Neither "@" nor ":" is part of a repository's path (OCI distribution specification 1.1, "Pulling
// manifests"). The provider checks the host. The errors do not quote the text, because a URL may
// contain a password.
func checkImageRepository(repository string) error {
	_, path, _ := strings.Cut(repository, "/")
	switch {
	case repository == "":
		return invalidRepository("it is empty", "name the image repository, as host/path")
	case strings.Contains(repository, "://"):
		return invalidRepository("it has a scheme", `give the image repository as host/path, without "https://" or "oci://"`)
	case strings.Contains(path, "@"):
		return invalidRepository("it has a digest", `give the image repository as host/path: leave out "@" and what follows`)
	case strings.Contains(path, ":"):
		return invalidRepository("it has a tag", `give the image repository as host/path: leave out ":" and the tag`)
	default:
		return nil
	}
}

func invalidRepository(problem, fix string) error {
	return &Error{Stage: StageRegistry, Code: CodeOptionInvalid, Fix: fix, Err: errors.New("image repository: " + problem)}
}

// WithSTSEndpoint sets the https URL of the security token service. The provider refuses a host
// that is neither its own nor allowed by its configuration.
func WithSTSEndpoint(endpoint string) Option {
	return func(o *Options) { o.STSEndpoint = endpoint }
}

// WithSTSRegion sets the region of the security token service. It may differ from the region of the
// resource.
func WithSTSRegion(region string) Option {
	return func(o *Options) { o.STSRegion = region }
}

// WithProxyURL sends every call of the exchange through an HTTP proxy: http or https, with an
// optional user and password.
func WithProxyURL(proxy *url.URL) Option {
	if proxy == nil || (proxy.Scheme != "http" && proxy.Scheme != "https") || proxy.Host == "" {
		return fail(&Error{
			Stage: StageSubject, Code: CodeOptionInvalid,
			Fix: "give the proxy as http://host:port or https://host:port",
			Err: errors.New("proxy URL is not an http or https URL with a host"),
		})
	}
	// Copy the URL, because the caller may change it later. The call must use the proxy that
	// proxyKey describes.
	fixed := *proxy
	proxyKey := hideProxyPassword(&fixed)
	return func(o *Options) { o.ProxyURL, o.proxyKey = &fixed, proxyKey }
}

// WithMinRemaining refuses cached tokens with less than d of life left. Use it for work that takes
// as long as d. Without this option the cache's minimum applies: the lesser of five minutes and a
// tenth of the token's life.
func WithMinRemaining(d time.Duration) Option {
	return func(o *Options) { o.MinRemaining = d }
}

// WithRetryNow repeats the exchange even if it failed a moment ago. Use it after a change that may
// have fixed the failure. The option has limits:
//
//   - A cache may delay the call by a few seconds, so that a tenant who keeps changing an object
//     cannot cause a flood of exchanges.
//   - After a temporary failure, the option does not shorten a wait that the server asked for
//     (Retry-After), because other tenants may use the server too.
//   - A tenant ([WithTenant]) cannot use the option for the failure of a lent subject, because
//     other tenants share that subject.
func WithRetryNow() Option {
	return func(o *Options) { o.RetryNow = true }
}

func fail(err error) Option {
	return func(o *Options) {
		if o.err == nil {
			o.err = err
		}
	}
}

// hideProxyPassword returns the proxy's URL for a key, with a keyed hash in place of the password.
// Within one process, equal passwords have equal hashes. Nobody can guess a password from its hash.
func hideProxyPassword(proxy *url.URL) string {
	password, ok := proxy.User.Password()
	if !ok {
		return proxy.String()
	}
	mac := hmac.New(sha256.New, processKey())
	mac.Write([]byte(password))
	shown := *proxy
	shown.User = url.UserPassword(proxy.User.Username(), "hmac-"+hex.EncodeToString(mac.Sum(nil)))
	return shown.String()
}

//nolint:gochecknoglobals // random per process and never written again: keys only need to agree within it.
var processKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return key
})
