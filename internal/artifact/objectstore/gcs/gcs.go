// Package gcs reads buckets of Google Cloud Storage through its JSON API. It sends its only two
// kinds of requests itself, and both only read. Google's clients link gRPC, which would double the
// controller's size.
package gcs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"golang.org/x/oauth2"

	"github.com/lanyard-dev/lanyard/internal/artifact/boundedjson"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// Options of a bucket.
type Options struct {
	// Bucket is the name of the bucket. Required.
	Bucket string
	// Endpoint is the host[:port] of the service, such as storage.googleapis.com. Required.
	Endpoint string
	// Tokens returns bearer tokens. It is called for each request. Nil: the bucket is read without
	// a token.
	Tokens oauth2.TokenSource
	// Caller describes the credential and the proxy, for error texts.
	Caller origin.Caller
	// Transport sends the requests. It is responsible for TLS, the proxy and the check of dialled
	// addresses. Required.
	Transport http.RoundTripper
}

type bucketStorage struct {
	client *http.Client
	// objects is the URL of the bucket's objects. Source: Cloud Storage JSON API v1, "Objects".
	objects string
	server  origin.Server
}

// New returns the bucket as a [objectstore.Storage]. It makes no request.
func New(opts Options) (objectstore.Storage, error) {
	switch {
	case opts.Bucket == "", opts.Endpoint == "":
		return nil, errors.New("gcs: bucket and endpoint are required")
	case opts.Transport == nil:
		return nil, errors.New("gcs: Options.Transport is required")
	}
	client := objectstore.NewClient(opts.Transport, false, opts.Caller)
	if opts.Tokens != nil {
		client.Transport = &bearer{tokens: opts.Tokens, next: client.Transport}
	}
	objects := "https://" + opts.Endpoint + "/storage/v1/b/" + url.PathEscape(opts.Bucket) + "/o"
	return &bucketStorage{client: client, objects: objects, server: objectstore.Server(opts.Endpoint, opts.Caller)}, nil
}

// bearer adds a bearer token to each request. Unlike oauth2.Transport, it caches no token. It marks
// errors of the token source, to distinguish them from errors of the service.
type bearer struct {
	tokens oauth2.TokenSource
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := b.tokens.Token()
	if err != nil {
		return nil, &objectstore.CredentialError{Err: err}
	}
	req = req.Clone(req.Context())
	token.SetAuthHeader(req)
	return b.next.RoundTrip(req)
}

// listing is a page of objects. Source: Cloud Storage JSON API v1, "Objects: list".
type listing struct {
	Next  string    `json:"nextPageToken"`
	Items []*object `json:"items"`
}

// object is one object on a page. The API writes 64-bit numbers as strings.
type object struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation,string"`
	Size       int64  `json:"size,string"`
}

// maxTokens bounds the JSON tokens of a page: a hundred for each of a thousand objects. An object
// with all its fields has about seventy; only a few fields are requested.
const maxTokens = 100 * 1000

// fields are the fields of the answer that a listing needs.
const fields = "nextPageToken,items(name,generation,size)"

// List implements [objectstore.Storage].
func (s *bucketStorage) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		query := url.Values{"alt": {"json"}, "projection": {"noAcl"}, "fields": {fields}, "prefix": {prefix}}
		for {
			page, err := s.list(ctx, query)
			reserve.Rest(ctx) // the page is decoded
			if err != nil {
				yield(objectstore.Object{}, objectstore.Explain(ctx, s.server, err))
				return
			}
			for _, o := range page.Items {
				if !yield(objectstore.Object{Key: o.Name, Version: strconv.FormatInt(o.Generation, 10), Size: o.Size}, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.Set("pageToken", page.Next)
		}
	}
}

// list reads one page.
func (s *bucketStorage) list(ctx context.Context, query url.Values) (*listing, error) {
	resp, err := s.get(ctx, s.objects, query, "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read a page of the listing: %w", err)
	}
	var page listing
	if err := boundedjson.Unmarshal(body, maxTokens, &page); errors.Is(err, boundedjson.ErrTooMany) {
		return nil, objectstore.TooLarge(s.server, "has more than %d parts", maxTokens)
	} else if err != nil {
		return nil, fmt.Errorf("read a page of the listing: %w", err)
	}
	for _, o := range page.Items {
		if o == nil || o.Size < 0 {
			return nil, errors.New("a listing with an object that cannot be")
		}
	}
	return &page, nil
}

// Open implements [objectstore.Storage]. It does not decompress an object that is stored
// compressed.
func (s *bucketStorage) Open(ctx context.Context, o objectstore.Object) (io.ReadCloser, error) {
	if _, err := strconv.ParseInt(o.Version, 10, 64); err != nil {
		return nil, objectstore.Explain(ctx, s.server, err)
	}
	query := url.Values{"alt": {"media"}, "generation": {o.Version}}
	// Accept gzip: otherwise Google decompresses objects that are stored with gzip. Source: Cloud
	// Storage, "Transcoding of gzip-compressed files".
	resp, err := s.get(objectstore.Content(ctx), s.objects+"/"+url.PathEscape(o.Key), query, "gzip")
	if err != nil {
		return nil, objectstore.Explain(ctx, s.server, err)
	}
	return checked(resp, o.Size), nil
}

// get requests a resource. If encoding is not empty, the content may have this encoding.
func (s *bucketStorage) get(ctx context.Context, address string, query url.Values, encoding string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if encoding != "" {
		req.Header.Set("Accept-Encoding", encoding)
	}
	return s.client.Do(req)
}
