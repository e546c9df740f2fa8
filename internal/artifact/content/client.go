package content

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Client downloads artifacts. It is safe for concurrent use.
type Client struct {
	http     http.Client
	hosts    Hosts
	maxBytes int64
}

// NewClient returns a client that downloads at most maxBytes bytes of an artifact from the hosts.
// The transport must not add credentials to requests.
func NewClient(transport http.RoundTripper, hosts Hosts, maxBytes int64) *Client {
	return &Client{
		hosts: hosts, maxBytes: maxBytes,
		http: http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Reference is what the status of a source says of its artifact.
type Reference struct {
	// URL is the address of the artifact.
	URL string
	// Digest is "sha256:<hex>", "sha384:<hex>" or "sha512:<hex>" of the content.
	Digest string
	// Size is the length of the content in bytes; nil if the status does not have it.
	Size *int64
	// Owners are the objects that may be in the path of the URL. For an ExternalArtifact, these are
	// the object itself and its source.
	Owners []Owner
}

// Owner is an object that has an artifact.
type Owner struct {
	// Kind is the object's kind, such as "OCIRepository".
	Kind string
	// Namespace and Name are those of the object.
	Namespace, Name string
}

// has reports whether a path is in the folder of the owner's artifacts at Lanyard's and at Flux's
// artifact servers. An owner with an empty field or with a slash has no folder.
func (o Owner) has(path string) bool {
	for _, part := range []string{o.Kind, o.Namespace, o.Name} {
		if part == "" || strings.Contains(part, "/") {
			return false
		}
	}
	return strings.HasPrefix(path, "/"+strings.ToLower(o.Kind)+"/"+o.Namespace+"/"+o.Name+"/")
}

// Check returns an error if the artifact must not be downloaded. It sends no request. The error is an
// [*Error].
func (c *Client) Check(reference Reference) error {
	_, err := c.check(reference)
	return err
}

// Fetch returns the content of an artifact, after it has checked the digest and the size. An error
// is an [*Error], or the cause of ctx.
func (c *Client) Fetch(ctx context.Context, reference Reference) ([]byte, error) {
	u, err := c.check(reference)
	if err != nil {
		return nil, err
	}
	sum, want, err := parseDigest(reference.Digest)
	if err != nil {
		return nil, err
	}
	content, err := c.get(ctx, u)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	const fix = "reconcile the source"
	if size := reference.Size; size != nil && *size != int64(len(content)) {
		return nil, &Error{Reason: ReasonDamaged, Fix: fix, Err: fmt.Errorf("the content has %d bytes, and the source says %d", len(content), *size)}
	}
	sum.Write(content)
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return nil, &Error{Reason: ReasonDamaged, Fix: fix, Err: fmt.Errorf("the content has the digest %s, and the source says %s", got, want)}
	}
	return content, nil
}

// check returns the URL of a reference, if it may be downloaded.
func (c *Client) check(reference Reference) (*url.URL, error) {
	u, err := url.Parse(reference.URL)
	if err != nil {
		return nil, refuse("reconcile the source", "the source's status.artifact.url is no URL")
	}
	const own = "let the source's own controller write the status"
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, refuse(own, "the source's status.artifact.url is not for http or https")
	case !c.hosts.has(u):
		return nil, refuse("ask the administrator to list this artifact server", "%q is no artifact server of this cluster", u.Host)
	case u.User != nil, u.RawQuery != "", u.ForceQuery, u.Fragment != "", u.RawPath != "", path.Clean(u.Path) != u.Path:
		return nil, refuse(own, "the source's status.artifact.url has more than a host and a plain path")
	case !slices.ContainsFunc(reference.Owners, func(o Owner) bool { return o.has(u.Path) }):
		return nil, refuse(own, "the source's status.artifact.url has the artifact of another object")
	case reference.Size != nil && *reference.Size < 0:
		return nil, refuse(own, "the source's status.artifact.size is negative")
	case reference.Size != nil && *reference.Size > c.maxBytes:
		return nil, c.tooLarge()
	}
	return u, nil
}

// get downloads the content of a URL.
func (c *Client) get(ctx context.Context, u *url.URL) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, refuse("reconcile the source", "the source's status.artifact.url is no URL")
	}
	// Without this header, net/http would ask for gzip and decompress the content.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, unreachable(u, withoutURL(err))
	}
	defer response.Body.Close() //nolint:errcheck // only read
	switch {
	case response.StatusCode == http.StatusOK:
	case response.StatusCode == http.StatusNotFound, response.StatusCode == http.StatusGone:
		return nil, &Error{Reason: ReasonGone, Fix: "wait for the source's next artifact, or reconcile the source", Err: fmt.Errorf("%s has this artifact no longer", u.Host)}
	case response.StatusCode >= 300 && response.StatusCode < 400:
		return nil, refuse("let the server answer itself", "%s answered with a redirect", u.Host)
	default:
		return nil, unreachable(u, fmt.Errorf("status %s", response.Status))
	}
	if response.ContentLength > c.maxBytes {
		return nil, c.tooLarge()
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, c.maxBytes+1))
	if err != nil {
		return nil, unreachable(u, err)
	}
	if int64(len(content)) > c.maxBytes {
		return nil, c.tooLarge()
	}
	return content, nil
}

// unreachable returns an error with ReasonUnreachable.
func unreachable(u *url.URL, err error) *Error {
	return &Error{Reason: ReasonUnreachable, Err: fmt.Errorf("%s: %w", u.Host, err), Fix: "check that the artifact server runs, and that a NetworkPolicy allows the connection"}
}

// withoutURL takes the URL out of an error of net/http, since the URL is a capability.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

func (c *Client) tooLarge() *Error {
	return &Error{
		Reason: ReasonTooLarge, Err: fmt.Errorf("it is larger than %d bytes", c.maxBytes),
		Fix: "leave files out with spec.ignore of the source, or ask the administrator for a higher limit",
	}
}

// parseDigest returns the hash function and the hexadecimal digits of a digest.
func parseDigest(digest string) (sum hash.Hash, want string, err error) {
	algorithm, want, _ := strings.Cut(digest, ":")
	switch algorithm {
	case "sha256":
		sum = sha256.New()
	case "sha384":
		sum = sha512.New384()
	case "sha512":
		sum = sha512.New()
	default:
		return nil, "", refuse("use sha256, sha384 or sha512", "the source's status.artifact.digest has the algorithm %.20q", algorithm)
	}
	if bytes, err := hex.DecodeString(want); err != nil || len(bytes) != sum.Size() || strings.ToLower(want) != want {
		return nil, "", refuse("reconcile the source", "the source's status.artifact.digest is no %s", algorithm)
	}
	return sum, want, nil
}
