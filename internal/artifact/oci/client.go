package oci

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// Bounds of a registry's answers.
const (
	// DefaultMaxLayerBytes is 256 MiB.
	DefaultMaxLayerBytes = 256 << 20
	// maxManifestBytes is 4 MiB. The distribution specification asks registries to accept this
	// size.
	maxManifestBytes = 4 << 20
	// maxTags is 100000, twice the number of tags in the largest known repositories.
	maxTags = 100_000
	// maxTagPages is 2000: it is enough for maxTags in Quay's pages of 50 tags.
	maxTagPages = 2_000
	// maxTagBytes is 64 MiB. Google's registries send all tags in one answer, together with a
	// description of about 500 bytes for each image.
	maxTagBytes = 64 << 20
)

// tagLimits bound a list of tags.
type tagLimits struct {
	Tags  int
	Pages int   // maximum number of the registry's answers for one list; each answer is a page
	Bytes int64 // maximum total size of these answers
}

// Options of a connection.
type Options struct {
	// Auth returns the credentials; nil means anonymous access. Use Basic for a user name and
	// password. A RegistryToken is sent to the registry as a bearer token, without a token server.
	// If the registry asks for a user and a password, the token is sent as the password of
	// Username.
	Auth authn.Authenticator
	// Caller describes the credential and the proxy, for error texts. The zero Caller means a
	// client with a credential and without a proxy.
	Caller origin.Caller
	// Transport sends the requests. It is responsible for TLS, the proxy and the check of dialled
	// addresses. Required.
	Transport http.RoundTripper
	// Insecure allows plain http to the repository's own host only, as spec.insecure does. Redirect
	// targets and token servers at other hosts always need https. Loopback is no exception.
	Insecure bool
	// MaxLayerBytes bounds the transferred bytes of a layer. Zero means DefaultMaxLayerBytes.
	MaxLayerBytes int64
	// Write makes the client request the permission to push. Registries with a token server grant
	// it only on request.
	Write bool
	// Uploads remembers uploads that broke off, so that a later Push continues them. The zero value
	// remembers nothing.
	Uploads Uploads
	// Challenges remembers how clients must authenticate to registries; nil remembers nothing.
	Challenges *Challenges
	// Route identifies everything that decides which server Transport reaches for a host name:
	// proxy, certificate authorities, client certificate. Challenges are not shared between routes.
	Route string
}

// Basic returns an Authenticator for a user name and a password. Cloud registries accept their
// tokens as passwords.
func Basic(username, password string) authn.Authenticator {
	return &authn.Basic{Username: username, Password: password}
}

// Client reads and writes one repository. It is safe for concurrent use.
type Client struct {
	repo     Repository
	session  *session
	login    func(ctx context.Context, shown authn.AuthConfig) (http.RoundTripper, error)
	auth     authn.Authenticator
	shown    atomic.Pointer[authn.AuthConfig] // the credential of the last login
	http     atomic.Pointer[http.Client]      // replaced at each login
	base     url.URL
	maxLayer int64     // bytes
	maxTags  tagLimits // lower in tests
	uploads  Uploads
}

// Connect asks the registry for its challenge and authenticates as the challenge demands. The error
// is an *origin.Error, or an error of Options.Auth.
func Connect(ctx context.Context, repo Repository, opts Options) (*Client, error) {
	if repo.IsZero() {
		return nil, invalidRepository(fieldURL, "", "no repository is given")
	}
	if opts.Transport == nil {
		return nil, errors.New("oci: Options.Transport is required")
	}
	target, err := repo.target(opts.Insecure)
	if err != nil {
		return nil, invalidRepository(repo.field, "", "%w", err)
	}
	auth := opts.Auth
	if auth == nil {
		auth = authn.Anonymous
	}
	s := &session{
		field: repo.field, server: origin.Server{Kind: origin.Registry, Host: repo.host, Caller: opts.Caller},
		home: target.RegistryStr(), insecure: opts.Insecure, next: opts.Transport, challenges: opts.Challenges, route: opts.Route,
	}
	scope := transport.PullScope
	if opts.Write {
		scope = transport.PushScope
	}
	c := &Client{
		repo:    repo,
		session: s,
		auth:    auth,
		login: func(ctx context.Context, shown authn.AuthConfig) (http.RoundTripper, error) {
			if shown.RegistryToken != "" {
				return showToken(ctx, target.Registry, s, shown)
			}
			return transport.NewWithContext(ctx, target.Registry, authn.FromConfig(shown),
				transport.NewUserAgent(s, userAgent), []string{target.Scope(scope)})
		},
		// The scheme is always https here. If the repository is insecure and the registry has no
		// TLS, the transport that login returns changes the scheme to http.
		base:     url.URL{Scheme: "https", Host: target.RegistryStr(), Path: "/v2/" + target.RepositoryStr()},
		maxLayer: cmp.Or(opts.MaxLayerBytes, DefaultMaxLayerBytes),
		maxTags:  tagLimits{Tags: maxTags, Pages: maxTagPages, Bytes: maxTagBytes},
		uploads:  opts.Uploads,
	}
	if err := c.authenticate(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// authenticate logs in with the current credential, in the way that the registry's challenge
// demands. The error is an *origin.Error, or an error of Options.Auth.
func (c *Client) authenticate(ctx context.Context) error {
	shown, err := authn.Authorization(ctx, c.auth)
	if err != nil {
		return fmt.Errorf("oci: Options.Auth: %w", err)
	}
	// The method redact must know all secrets of the credential. RoundTrip remembers only those
	// that it sees in an Authorization header. Some are sent in other ways.
	c.session.keep(shown.Password, shown.IdentityToken, shown.RegistryToken)
	c.shown.Store(shown)
	rt, err := c.login(ctx, *shown)
	if err != nil {
		c.session.doubt()
		return c.session.requestError(ctx, err, targetRegistry)
	}
	c.http.Store(&http.Client{Transport: rt, CheckRedirect: c.session.checkRedirect})
	return nil
}

// hasRenewed reports whether the credential of Options.Auth has changed since the last login. A
// credential may expire during a long transfer.
func (c *Client) hasRenewed(ctx context.Context) bool {
	now, err := authn.Authorization(ctx, c.auth)
	return err == nil && *now != *c.shown.Load()
}

const userAgent = "lanyard"

// request is one request of a client.
type request struct {
	method string
	url    url.URL
	target target
	header http.Header
	// body returns the content from its beginning; nil if there is no content.
	body func() io.Reader
	size int64 // length of the body
	// want are the statuses of success; empty means only 200.
	want []int
	// renewed is true if the request was refused before and is sent with a new credential.
	renewed bool
}

func (r request) build(ctx context.Context) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		body = r.body()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, r.header)
	// Without the header, net/http would accept gzip and decode the answer.
	req.Header.Set("Accept-Encoding", "identity")
	if r.body != nil {
		req.ContentLength = r.size
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(r.body()), nil }
	}
	return req, nil
}

// send sends one request and returns the answer if its status is 200. The caller closes the body.
func (c *Client) send(ctx context.Context, method string, u url.URL, t target, accept ...string) (*http.Response, error) {
	r := request{method: method, url: u, target: t, header: http.Header{}}
	if len(accept) > 0 {
		r.header.Set("Accept", strings.Join(accept, ", "))
	}
	return c.do(ctx, r)
}

// do sends one request and returns the answer if its status is in r.want. The caller closes the
// body.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	req, err := r.build(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Load().Do(req)
	if err != nil {
		c.session.doubt()
		return nil, c.session.requestError(ctx, err, r.target)
	}
	if slices.Contains(r.want, resp.StatusCode) || len(r.want) == 0 && resp.StatusCode == http.StatusOK {
		resp.Body = &timely{ReadCloser: resp.Body, ctx: ctx}
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	expired := resp.StatusCode == http.StatusUnauthorized && !r.renewed && c.hasRenewed(ctx)
	if contradicts(resp) && c.session.doubt() || expired {
		if err := c.authenticate(ctx); err != nil {
			return nil, err
		}
		r.renewed = r.renewed || expired
		return c.do(ctx, r)
	}
	return nil, c.session.responseError(resp, r.target)
}

// timely is the body of an answer. If the request's context has ended, Read returns an error in
// place of io.EOF. When a context ends, the client gives up the request. A server may react by
// ending the body properly, although content is missing. With io.EOF, the body would look complete.
type timely struct {
	io.ReadCloser

	ctx context.Context //nolint:containedctx // of the request; io.Reader takes none
}

func (t *timely) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && t.ctx.Err() != nil {
		err = context.Cause(t.ctx)
	}
	return n, err
}

// repeat sends a request that writes, but does no harm if it arrives twice. It sends the request
// again after a failure that may pass within a second. Package attempt does the same for requests
// that only read.
func (c *Client) repeat(ctx context.Context, r request) (resp *http.Response, err error) {
	ended := attempt.Do(ctx, attempt.Reads, func() bool {
		resp, err = c.do(ctx, r) //nolint:bodyclose // the caller's
		return mayPass(err)
	})
	if ended != nil {
		return nil, c.session.requestError(ctx, ended, r.target)
	}
	return resp, err
}

// mayPass reports whether a failed request may be sent again at once.
func mayPass(err error) bool {
	e, ok := errors.AsType[*origin.Error](err)
	if !ok || e.RetryAfter > 0 {
		return false
	}
	if failure, ok := errors.AsType[*attempt.Failure](e.Err); ok {
		return failure.Again()
	}
	return e.Status != 0 && attempt.Again(e.Status, nil)
}

// contradicts reports whether a registry's answer may mean that the remembered challenge is
// outdated. Then the client must log in again. Servers answer 401 if they need other credentials,
// and 400 if they need TLS.
func contradicts(resp *http.Response) bool {
	return resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusBadRequest
}

func (c *Client) url(elements ...string) url.URL {
	u := c.base
	u.Path = path.Join(append([]string{u.Path}, elements...)...)
	return u
}

// failed returns an error whose server is the registry.
func (c *Client) failed(code origin.Code, format string, args ...any) *origin.Error {
	return &origin.Error{Server: c.session.server, Code: code, Err: fmt.Errorf(format, args...)}
}

func (c *Client) protocol(what string) *origin.Error {
	return c.failed(origin.CodeProtocol, "%s", what)
}

// readAll reads an answer. If the answer is longer than limit bytes, the error has CodeTooLarge.
// readAll takes memory for the answer and for its decoder from the program's pool. The pool gets
// the memory back after the whole fetch.
func (c *Client) readAll(ctx context.Context, r io.Reader, limit int64, what string) ([]byte, error) {
	const step = 64 << 10
	var body bytes.Buffer
	for {
		n, err := io.CopyN(&body, r, step)
		if int64(body.Len()) > limit {
			return nil, c.failed(origin.CodeTooLarge, "%s is longer than %d bytes", what, limit)
		}
		ended := errors.Is(err, io.EOF)
		if err == nil || ended {
			err = reserve.Take(ctx, cost(body.Bytes()[body.Len()-int(n):]))
		}
		if err != nil {
			return nil, c.bodyError(ctx, err, what)
		}
		if ended {
			return body.Bytes(), nil
		}
	}
}

// bodyError returns the error for an answer that began but did not end.
func (c *Client) bodyError(ctx context.Context, err error, what string) *origin.Error {
	if cause := context.Cause(ctx); cause != nil {
		return c.failed(origin.CodeUnreachable, "%s did not arrive in time: %w", what, cause)
	}
	why := attempt.Explain(err)
	if why.Cause == attempt.TooSlow {
		return c.session.server.NoAnswer(ctx, err)
	}
	return c.failed(origin.CodeTruncated, "%s broke off: %w", what, why)
}
