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
	"sync"
	"time"
)

// Options are the combined options of one call. Providers read them; callers set them with the With functions.
type Options struct {
	// Subject is the subject that the token is for.
	Subject Subject
	// Accounts reads the subject; nil for the controller.
	Accounts AccountReader
	// Prover vouches for the subject; nil for the controller.
	Prover Prover
	// Cache keeps tokens; nil for none.
	Cache Cache
	// InvolvedObject is counted in the cache's metrics.
	InvolvedObject InvolvedObject
	// Observer is told of every stage that ran; nil for none.
	Observer Observer
	// Scopes bound the token.
	Scopes List
	// ImageRepository asks for registry credentials, as host/path without scheme, tag or digest.
	ImageRepository string
	// STSEndpoint replaces the provider's own security token service, as an https URL.
	STSEndpoint string
	// STSRegion is the region of the security token service.
	STSRegion string
	// ProxyURL is the HTTP proxy for all calls of the exchange; nil for the provider's own transport.
	ProxyURL *url.URL
	// MinRemaining is the least life that a cached token must have left.
	MinRemaining time.Duration
	// RetryNow ignores a remembered failure.
	RetryNow bool

	proxyKey string
	err      error
}

// Format prints the subject for every verb: the proxy's URL may hold a password.
func (o Options) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, "options for "+o.Subject.String())
}

// Option configures a call. Options may be built once and used for any number of calls.
type Option func(*Options)

// InvolvedObject is the object on whose behalf a token is requested. It never decides which token that is.
type InvolvedObject struct {
	// Kind, Namespace and Name are the object's.
	Kind, Namespace, Name string
	// Operation says what for: reconcile, verify and so on.
	Operation string
}

// Cache keeps tokens; package auth/cache has the implementation.
type Cache interface {
	// Get is key's token if it can be given out without any work. It does no I/O and does not allocate. A token with less
	// than minRemaining of life left is not given out; zero means the cache's own floor.
	Get(key Key, minRemaining time.Duration, involved InvolvedObject) (Token, bool)
	// Fetch is key's token, with fetch called to get it when there is none that may be served. Of the calls with one key,
	// one fetches and the others wait for it, each no longer than its own ctx. fetch gets a context that outlives the
	// caller's and has a deadline of its own.
	Fetch(ctx context.Context, key Key, options FetchOptions, fetch func(context.Context) (Fetched, error)) (Token, error)
}

// FetchOptions say how [Cache.Fetch] treats what it already has.
type FetchOptions struct {
	// MinRemaining is the least life that a kept token must have left; zero means the cache's own floor.
	MinRemaining time.Duration
	// RetryNow ignores a remembered failure.
	RetryNow bool
	// InvolvedObject is counted in the metrics.
	InvolvedObject InvolvedObject
}

// Fetched is what a fetch yields.
type Fetched struct {
	// Token is never nil.
	Token Token
	// Key is the key of the token that was really issued. A cache keeps the token only if it is the one that was asked
	// for: the subject may have changed between memory and source of truth.
	Key Key
}

// Observer is told of every stage of an exchange; package auth/cache makes one that feeds Prometheus.
type Observer interface {
	// ObserveStage is called after a stage, with its outcome: "success" or the error's [Code].
	ObserveStage(provider string, stage Stage, outcome string, took time.Duration)
}

// WithServiceAccount asks for a token for that ServiceAccount. See [ServiceAccount] for what the names must be.
func WithServiceAccount(namespace, name string, accounts Accounts) Option {
	subject, err := ServiceAccount(namespace, name)
	if err != nil {
		return fail(err)
	}
	return WithSubject(subject, accounts, accounts)
}

// WithSubject asks for a token for the subject, which reader knows and prover vouches for.
func WithSubject(subject Subject, reader AccountReader, prover Prover) Option {
	if reader == nil || prover == nil {
		return fail(&Error{
			Stage: StageSubject, Code: CodeSubjectInvalid,
			Fix: "pass an AccountReader and a Prover (package auth/kube makes both)",
			Err: fmt.Errorf("nobody vouches for subject %s", subject),
		})
	}
	return func(o *Options) { o.Subject, o.Accounts, o.Prover = subject, reader, prover }
}

// WithController asks for a token of the calling program's own identity. Whether a tenant's object may have it is the
// caller's decision (package auth/spec takes it).
func WithController() Option {
	return func(o *Options) { o.Subject, o.Accounts, o.Prover = Controller(), nil, nil }
}

// WithCache keeps tokens in cache and counts the call for the involved object, whose zero value counts for nobody.
func WithCache(cache Cache, involved InvolvedObject) Option {
	return func(o *Options) { o.Cache, o.InvolvedObject = cache, involved }
}

// WithObserver has observer told of every stage that runs.
func WithObserver(observer Observer) Option {
	return func(o *Options) { o.Observer = observer }
}

// WithScopes bounds the token to scopes, in the provider's own syntax. An empty scope is an error.
func WithScopes(scopes ...string) Option {
	list, err := NewList(scopes...)
	if err != nil {
		return fail(&Error{Stage: StageSubject, Code: CodeOptionInvalid, Fix: "leave out empty scopes", Err: fmt.Errorf("scopes: %w", err)})
	}
	return func(o *Options) { o.Scopes = list }
}

// WithImageRepository asks for [*RegistryCredentials] for the repository, given as host/path.
func WithImageRepository(repository string) Option {
	if repository == "" {
		return fail(&Error{Stage: StageRegistry, Code: CodeOptionInvalid, Fix: "name the image repository, as host/path", Err: errors.New("image repository is empty")})
	}
	return func(o *Options) { o.ImageRepository = repository }
}

// WithSTSEndpoint sets the security token service, an https URL. The provider refuses hosts that are not its own and not
// allowed by its configuration.
func WithSTSEndpoint(endpoint string) Option {
	return func(o *Options) { o.STSEndpoint = endpoint }
}

// WithSTSRegion sets the region of the security token service, which need not be that of the resource.
func WithSTSRegion(region string) Option {
	return func(o *Options) { o.STSRegion = region }
}

// WithProxyURL sends every call of the exchange through an HTTP proxy: http or https, with an optional user and password.
func WithProxyURL(proxy *url.URL) Option {
	if proxy == nil || (proxy.Scheme != "http" && proxy.Scheme != "https") || proxy.Host == "" {
		return fail(&Error{
			Stage: StageSubject, Code: CodeOptionInvalid,
			Fix: "give the proxy as http://host:port or https://host:port",
			Err: errors.New("proxy URL is not an http or https URL with a host"),
		})
	}
	fixed := *proxy // the caller's may change, and the key would not
	proxyKey := hideProxyPassword(&fixed)
	return func(o *Options) { o.ProxyURL, o.proxyKey = &fixed, proxyKey }
}

// WithMinRemaining refuses cached tokens with less than d of life left: for work that takes that long. Without it the
// cache's floor holds, the lesser of five minutes and a tenth of the token's life.
func WithMinRemaining(d time.Duration) Option {
	return func(o *Options) { o.MinRemaining = d }
}

// WithRetryNow makes the exchange even if it failed a moment ago. Use it when somebody changed something: the failure
// that is remembered may be over. A cache may let the call wait some seconds first: that somebody may be a tenant who does
// nothing else. A wait that the other side asked for (Retry-After) is not passed: it concerns all tenants.
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

// hideProxyPassword is the proxy's URL for a key: equal for equal passwords within one process, and useless for guessing
// them.
func hideProxyPassword(proxy *url.URL) string {
	password, ok := proxy.User.Password()
	if !ok {
		return proxy.String()
	}
	mac := hmac.New(sha256.New, passwordKey())
	mac.Write([]byte(password))
	shown := *proxy
	shown.User = url.UserPassword(proxy.User.Username(), "hmac-"+hex.EncodeToString(mac.Sum(nil)))
	return shown.String()
}

//nolint:gochecknoglobals // random per process and never written again: keys only need to agree within it.
var passwordKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return key
})
