package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/lanyard-dev/lanyard/internal/artifact/disconnection"
)

// Defaults of Limits.
const (
	// DefaultMaxManifestBytes is the 4 MiB that the distribution specification asks registries to accept.
	DefaultMaxManifestBytes = 4 << 20
	// DefaultMaxLayerBytes is 256 MiB.
	DefaultMaxLayerBytes = 256 << 20
	// DefaultMaxTags is 100000, twice what the largest repositories are known to have.
	DefaultMaxTags = 100_000
	// DefaultMaxTagPages is 2000: DefaultMaxTags in pages of 50, which are Quay's.
	DefaultMaxTagPages = 2_000
	// DefaultMaxTagBytes is 64 MiB. Google's registries send all tags in one answer, each beside a description of its image
	// of about 500 bytes.
	DefaultMaxTagBytes = 64 << 20
)

// Limits bound what a registry may send. A zero field stands for its default.
type Limits struct {
	// MaxManifestBytes bounds a manifest or index. Default DefaultMaxManifestBytes.
	MaxManifestBytes int64
	// MaxLayerBytes bounds a layer as it is transferred. Default DefaultMaxLayerBytes.
	MaxLayerBytes int64
	// MaxTags bounds the tags of a repository. Default DefaultMaxTags.
	MaxTags int
	// MaxTagPages bounds the answers that a list of tags comes in. Default DefaultMaxTagPages.
	MaxTagPages int
	// MaxTagBytes bounds these answers together. Default DefaultMaxTagBytes.
	MaxTagBytes int64
}

func (l Limits) withDefaults() Limits {
	if l.MaxManifestBytes <= 0 {
		l.MaxManifestBytes = DefaultMaxManifestBytes
	}
	if l.MaxLayerBytes <= 0 {
		l.MaxLayerBytes = DefaultMaxLayerBytes
	}
	if l.MaxTags <= 0 {
		l.MaxTags = DefaultMaxTags
	}
	if l.MaxTagPages <= 0 {
		l.MaxTagPages = DefaultMaxTagPages
	}
	if l.MaxTagBytes <= 0 {
		l.MaxTagBytes = DefaultMaxTagBytes
	}
	return l
}

// Options of a connection.
type Options struct {
	// Auth gives the credentials; nil means none. Use Basic for a user name and password.
	Auth authn.Authenticator
	// Transport carries the requests: TLS, proxy, the check of dialled addresses. Required.
	Transport http.RoundTripper
	// Insecure allows plain http to the repository's own host, as spec.insecure does. Without it no request leaves without TLS, on
	// loopback either, and never one to where the registry redirects or has its token server elsewhere.
	Insecure bool
	// Limits bound the answers.
	Limits Limits
}

// Basic returns an Authenticator for a user name and a password, which is how cloud registries take their tokens.
func Basic(username, password string) authn.Authenticator {
	return &authn.Basic{Username: username, Password: password}
}

// Client reads one repository. It is safe for concurrent use and should live as long as its credentials at most.
type Client struct {
	repo    Repository
	session *session
	http    *http.Client
	base    url.URL
	limits  Limits
}

// Connect asks the registry how it wants to be authenticated to and does so, for reading. The error is an *Error.
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
	s := &session{field: repo.field, host: repo.host, home: target.RegistryStr(), insecure: opts.Insecure, next: opts.Transport}
	if config, err := authn.Authorization(ctx, auth); err == nil {
		// Not all of them are sent as an Authorization header.
		s.keep(config.Password, config.IdentityToken, config.RegistryToken)
	}
	rt, err := transport.NewWithContext(ctx, target.Registry, auth,
		transport.NewUserAgent(s, userAgent), []string{target.Scope(transport.PullScope)})
	if err != nil {
		return nil, s.requestError(ctx, err, targetRegistry)
	}
	return &Client{
		repo:    repo,
		session: s,
		http:    &http.Client{Transport: rt, CheckRedirect: s.checkRedirect},
		// The library changes the scheme where the repository is insecure and the registry has no TLS.
		base:   url.URL{Scheme: "https", Host: target.RegistryStr(), Path: "/v2/" + target.RepositoryStr()},
		limits: opts.Limits.withDefaults(),
	}, nil
}

const userAgent = "lanyard"

// Repository returns the repository that the client reads.
func (c *Client) Repository() Repository { return c.repo }

// send makes one request and returns the answer if its status is 200. The caller closes the body.
func (c *Client) send(ctx context.Context, method string, u url.URL, t target, accept ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if len(accept) > 0 {
		req.Header.Set("Accept", strings.Join(accept, ", "))
	}
	// Otherwise net/http would accept, and undo, an encoding that is none of the content's.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.session.requestError(ctx, err, t)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close() //nolint:errcheck // read only
		return nil, c.session.responseError(resp, t)
	}
	return resp, nil
}

func (c *Client) url(elements ...string) url.URL {
	u := c.base
	u.Path = path.Join(append([]string{u.Path}, elements...)...)
	return u
}

func (c *Client) protocol(what string) *Error {
	return &Error{Code: CodeProtocol, Host: c.repo.host, Err: errors.New(what)}
}

// readAll reads a bounded answer.
func (c *Client) readAll(ctx context.Context, r io.Reader, limit int64, what string) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, c.bodyError(ctx, err, what)
	}
	if int64(len(body)) > limit {
		return nil, &Error{Code: CodeTooLarge, Host: c.repo.host, Err: fmt.Errorf("%s is longer than %d bytes", what, limit)}
	}
	return body, nil
}

// bodyError is an answer that began and did not end.
func (c *Client) bodyError(ctx context.Context, err error, what string) *Error {
	if cause := context.Cause(ctx); cause != nil {
		return &Error{Code: CodeUnreachable, Host: c.repo.host, Err: fmt.Errorf("%s did not arrive in time: %w", what, cause)}
	}
	return &Error{Code: CodeTruncated, Host: c.repo.host, Err: fmt.Errorf("%s broke off: %w", what, disconnection.Hide(err))}
}
