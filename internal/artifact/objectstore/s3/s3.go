// Package s3 reads buckets of Amazon S3, and of services with the same protocol, through AWS's own
// client. Credentials and configuration come only from [Options], not from the environment.
package s3

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// Options of a bucket.
type Options struct {
	// Bucket is the name of the bucket. Required.
	Bucket string
	// Endpoint is the host[:port] of the service. Required.
	Endpoint string
	// Region is the region in the requests' signatures. Required.
	Region string
	// PathStyle puts the bucket's name into the path instead of the host name. Services other than
	// Amazon's need it.
	PathStyle bool
	// Insecure sends requests over plain HTTP.
	Insecure bool
	// Credentials returns the credentials that sign a request. It is called for each request. Nil:
	// requests are not signed.
	Credentials aws.CredentialsProvider
	// Caller describes the credential and the proxy, for error texts.
	Caller origin.Caller
	// Transport sends the requests. It is responsible for TLS, the proxy and the check of dialled
	// addresses. Required.
	Transport http.RoundTripper
}

type storage struct {
	client *s3.Client
	bucket string
	server origin.Server
}

// New returns the bucket as a [objectstore.Storage]. It makes no request.
func New(opts Options) (objectstore.Storage, error) {
	switch {
	case opts.Bucket == "", opts.Endpoint == "", opts.Region == "":
		return nil, errors.New("s3: bucket, endpoint and region are required")
	case opts.Transport == nil:
		return nil, errors.New("s3: Options.Transport is required")
	}
	endpoint := url.URL{Scheme: "https", Host: opts.Endpoint}
	if opts.Insecure {
		endpoint.Scheme = "http"
	}
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String(endpoint.String()),
		Region:       opts.Region,
		UsePathStyle: opts.PathStyle,
		Credentials:  credentials(opts.Credentials),
		HTTPClient:   objectstore.NewClient(opts.Transport, opts.Insecure, opts.Caller),
		Retryer:      aws.NopRetryer{},
		// Use checksums only where S3 requires them. Other services support no checksum except MD5,
		// and TLS protects the content of S3's own answers.
		RequestChecksumCalculation:  aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation:  aws.ResponseChecksumValidationWhenRequired,
		DisableS3ExpressSessionAuth: aws.Bool(true),
	})
	return &storage{client: client, bucket: opts.Bucket, server: objectstore.Server(opts.Endpoint, opts.Caller)}, nil
}

// credentials marks errors of the provider, to distinguish them from errors of the service.
func credentials(p aws.CredentialsProvider) aws.CredentialsProvider {
	if p == nil {
		return aws.AnonymousCredentials{}
	}
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		c, err := p.Retrieve(ctx)
		if err != nil {
			return aws.Credentials{}, &objectstore.CredentialError{Err: err}
		}
		return c, nil
	})
}

// List implements [objectstore.Storage].
func (s *storage) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{
			Bucket: &s.bucket, Prefix: &prefix,
			// XML cannot represent all characters of a key, so request URL-encoded keys.
			EncodingType: types.EncodingTypeUrl,
		})
		for last := ""; pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			reserve.Rest(ctx) // the page is decoded
			if err == nil && aws.ToBool(page.IsTruncated) {
				// The page says that more pages follow. If it has no continuation token, the client
				// would end the list nevertheless. Then half a bucket would look like the whole
				// bucket. So report an error.
				next := aws.ToString(page.NextContinuationToken)
				if next == "" || next == last {
					err = errors.New("a page that is not the last leads nowhere")
				}
				last = next
			}
			if err != nil {
				yield(objectstore.Object{}, objectstore.Explain(ctx, s.server, err))
				return
			}
			for _, o := range page.Contents {
				key := aws.ToString(o.Key)
				if page.EncodingType == types.EncodingTypeUrl {
					if key, err = url.QueryUnescape(key); err != nil {
						yield(objectstore.Object{}, objectstore.Explain(ctx, s.server, err))
						return
					}
				}
				if !yield(objectstore.Object{Key: key, Version: aws.ToString(o.ETag), Size: aws.ToInt64(o.Size)}, nil) {
					return
				}
			}
		}
	}
}

// Open implements [objectstore.Storage].
func (s *storage) Open(ctx context.Context, o objectstore.Object) (io.ReadCloser, error) {
	out, err := s.client.GetObject(objectstore.Content(ctx), &s3.GetObjectInput{Bucket: &s.bucket, Key: &o.Key, IfMatch: &o.Version})
	if err != nil {
		return nil, objectstore.Explain(ctx, s.server, err)
	}
	if got := aws.ToString(out.ETag); got != "" && strings.Trim(got, `"`) != strings.Trim(o.Version, `"`) {
		// Compare the entity tags here too, because some services ignore If-Match. The quotes
		// around a tag differ between services.
		_ = out.Body.Close()
		return nil, &origin.Error{Server: s.server, Code: origin.CodeChanged, Err: errors.New("it has changed since it was listed")}
	}
	return out.Body, nil
}
