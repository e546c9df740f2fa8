// Package gcs reads buckets of Google Cloud Storage through Google's own client. It looks for no credentials and no
// configuration but what it is given, and asks no metadata server.
package gcs

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/lanyard-dev/lanyard/internal/artifact/bucket"
)

// Options of a bucket.
type Options struct {
	// Bucket is its name. Required.
	Bucket string
	// Endpoint is the host[:port] that serves it, such as storage.googleapis.com. Required.
	Endpoint string
	// Tokens gives bearer tokens; it is asked at each request. Nil: the bucket is read without one.
	Tokens oauth2.TokenSource
	// Transport carries the requests: TLS, proxy, the check of dialled addresses. Required.
	Transport http.RoundTripper
}

type bucketStorage struct {
	bucket *storage.BucketHandle
	host   string
}

// New returns the bucket as a [bucket.Storage]. It makes no request.
func New(ctx context.Context, opts Options) (bucket.Storage, error) {
	switch {
	case opts.Bucket == "", opts.Endpoint == "":
		return nil, errors.New("gcs: bucket and endpoint are required")
	case opts.Transport == nil:
		return nil, errors.New("gcs: Options.Transport is required")
	}
	own := bucket.NewClient(opts.Transport, false)
	if opts.Tokens != nil {
		own.Transport = &bearer{tokens: opts.Tokens, next: own.Transport}
	}
	client, err := storage.NewClient(ctx,
		option.WithHTTPClient(own),
		// Without it, the client looks for credentials in files and at the metadata server, although it has no use for them.
		option.WithoutAuthentication(),
		option.WithEndpoint((&url.URL{Scheme: "https", Host: opts.Endpoint, Path: "/storage/v1/"}).String()),
		option.WithTelemetryDisabled(),
	)
	if err != nil {
		return nil, errors.New("gcs: the client cannot be made")
	}
	client.SetRetry(storage.WithPolicy(storage.RetryNever))
	return &bucketStorage{bucket: client.Bucket(opts.Bucket), host: opts.Endpoint}, nil
}

// bearer is oauth2.Transport without its memory of one token, and with errors that can be told from those of the service.
type bearer struct {
	tokens oauth2.TokenSource
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := b.tokens.Token()
	if err != nil {
		return nil, &bucket.CredentialError{Err: err}
	}
	req = req.Clone(req.Context())
	token.SetAuthHeader(req)
	return b.next.RoundTrip(req)
}

// List implements [bucket.Storage].
func (s *bucketStorage) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		query := &storage.Query{Prefix: prefix, Projection: storage.ProjectionNoACL}
		if err := query.SetAttrSelection([]string{"Name", "Generation", "Size"}); err != nil {
			yield(bucket.Object{}, bucket.Explain(ctx, s.host, err))
			return
		}
		for objects := s.bucket.Objects(ctx, query); ; {
			o, err := objects.Next()
			if errors.Is(err, iterator.Done) {
				return
			}
			if err == nil && o == nil {
				err = errors.New("a listing with null for an object")
			}
			if err != nil {
				yield(bucket.Object{}, bucket.Explain(ctx, s.host, err))
				return
			}
			if !yield(bucket.Object{Key: o.Name, Version: strconv.FormatInt(o.Generation, 10), Size: o.Size}, nil) {
				return
			}
		}
	}
}

// Open implements [bucket.Storage]. An object that is stored compressed stays so.
func (s *bucketStorage) Open(ctx context.Context, o bucket.Object) (io.ReadCloser, error) {
	generation, err := strconv.ParseInt(o.Version, 10, 64)
	if err != nil {
		return nil, bucket.Explain(ctx, s.host, err)
	}
	r, err := s.bucket.Object(o.Key).Generation(generation).ReadCompressed(true).NewReader(bucket.Content(ctx))
	if err != nil {
		return nil, bucket.Explain(ctx, s.host, err)
	}
	return r, nil
}
