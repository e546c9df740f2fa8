// Package azblob reads containers of Azure Blob Storage through Azure's own client. Credentials and
// configuration come only from [Options], not from the environment.
package azblob

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// Options of a container.
type Options struct {
	// Container is the name of the container. Required.
	Container string
	// Endpoint is the host[:port] of the storage account. Required.
	Endpoint string
	// Credential returns bearer tokens. It is called again when a token expires. Nil: the container
	// is read without a token.
	Credential azcore.TokenCredential
	// Audience is the resource for which tokens are requested. Default: https://storage.azure.com.
	Audience string
	// Caller describes the credential and the proxy, for error texts.
	Caller origin.Caller
	// Transport sends the requests. It is responsible for TLS, the proxy and the check of dialled
	// addresses. Required.
	Transport http.RoundTripper
}

type storage struct {
	client *container.Client
	server origin.Server
}

// New returns the container as a [objectstore.Storage]. It makes no request.
func New(opts Options) (objectstore.Storage, error) {
	switch {
	case opts.Container == "", opts.Endpoint == "":
		return nil, errors.New("azblob: container and endpoint are required")
	case opts.Transport == nil:
		return nil, errors.New("azblob: Options.Transport is required")
	}
	address := (&url.URL{Scheme: "https", Host: opts.Endpoint, Path: "/" + opts.Container}).String()
	options := &container.ClientOptions{
		Audience: opts.Audience,
		ClientOptions: policy.ClientOptions{
			Transport: objectstore.NewClient(opts.Transport, false, opts.Caller),
			Retry:     policy.RetryOptions{MaxRetries: -1},
			Telemetry: policy.TelemetryOptions{Disabled: true},
		},
	}
	var client *container.Client
	var err error
	if opts.Credential == nil {
		client, err = container.NewClientWithNoCredential(address, options)
	} else {
		client, err = container.NewClient(address, credential{opts.Credential}, options)
	}
	if err != nil {
		return nil, errors.New("azblob: the container's address cannot be used")
	}
	return &storage{client: client, server: objectstore.Server(opts.Endpoint, opts.Caller)}, nil
}

// credential marks the errors of its TokenCredential, to distinguish them from errors of the
// service.
type credential struct{ azcore.TokenCredential }

// GetToken implements [azcore.TokenCredential].
func (c credential) GetToken(ctx context.Context, opts policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, opts)
	if err != nil {
		return azcore.AccessToken{}, &objectstore.CredentialError{Err: err}
	}
	return token, nil
}

// perPage is the maximum number of blobs on a page of a listing; Azure's default is 5000.
const perPage = 1000

// List implements [objectstore.Storage].
func (s *storage) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		options := &container.ListBlobsFlatOptions{MaxResults: new(int32(perPage))}
		if prefix != "" {
			options.Prefix = &prefix
		}
		pages := s.client.NewListBlobsFlatPager(options)
		for pages.More() {
			page, err := pages.NextPage(ctx)
			reserve.Rest(ctx) // the page is decoded
			if err == nil && page.Segment == nil {
				err = errors.New("a page without a list")
			}
			if err != nil {
				yield(objectstore.Object{}, objectstore.Explain(ctx, s.server, err))
				return
			}
			for _, item := range page.Segment.BlobItems {
				if isDirectory(item) {
					continue
				}
				if !yield(object(item), nil) {
					return
				}
			}
		}
	}
}

// isDirectory reports whether the item is a directory and not a blob. Accounts with a hierarchical
// namespace list their directories too.
func isDirectory(item *container.BlobItem) bool {
	return item.Properties != nil && item.Properties.ResourceType != nil && *item.Properties.ResourceType == "directory"
}

// object converts an item of a listing. A field that the service left out stays empty.
// [objectstore.List] refuses an object without an entity tag.
func object(item *container.BlobItem) objectstore.Object {
	var o objectstore.Object
	if item.Name != nil {
		o.Key = *item.Name
	}
	if p := item.Properties; p != nil {
		if p.ETag != nil {
			o.Version = string(*p.ETag)
		}
		if p.ContentLength != nil {
			o.Size = *p.ContentLength
		}
	}
	return o
}

// Open implements [objectstore.Storage].
func (s *storage) Open(ctx context.Context, o objectstore.Object) (io.ReadCloser, error) {
	version := azcore.ETag(o.Version)
	out, err := s.client.NewBlobClient(o.Key).DownloadStream(objectstore.Content(ctx), &blob.DownloadStreamOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &version}},
	})
	if err != nil {
		return nil, objectstore.Explain(ctx, s.server, err)
	}
	return out.Body, nil
}
