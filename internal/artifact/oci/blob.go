package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
)

// Open returns the layer's bytes as they are transferred. They are verified while they are read: io.EOF comes only after the
// announced length with the right digest, any other end is an *Error with CodeTruncated, CodeDigestMismatch or, when
// ctx ends, CodeUnreachable. A reader that stops earlier has verified nothing. The caller closes the stream.
func (c *Client) Open(ctx context.Context, layer Layer) (io.ReadCloser, error) {
	if err := checkDigest(layer.Digest); err != nil {
		return nil, c.protocol("the layer has no valid sha256 digest")
	}
	if layer.Size > c.limits.MaxLayerBytes {
		return nil, &Error{
			Code: CodeTooLarge, Host: c.repo.host, Fix: "publish a smaller artifact, or ask the administrator for a higher limit",
			Err: fmt.Errorf("the layer has %d bytes, more than %d", layer.Size, c.limits.MaxLayerBytes),
		}
	}
	resp, err := c.send(ctx, http.MethodGet, c.url("blobs", layer.Digest), targetBlob) //nolint:bodyclose // verified.Close does
	if err != nil {
		return nil, err
	}
	return &verified{ctx: ctx, client: c, layer: layer, body: resp.Body, hash: sha256.New()}, nil
}

// verified passes a layer's bytes on and ends well only if they were the right ones.
type verified struct {
	ctx    context.Context //nolint:containedctx // tells a deadline from a broken connection; io.Reader takes none
	client *Client
	layer  Layer
	body   io.ReadCloser
	hash   hash.Hash
	n      int64
	err    error
}

func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.body.Read(p)
	v.n += int64(n)
	v.hash.Write(p[:n])
	switch {
	case v.n > v.layer.Size:
		v.err = v.mismatch(fmt.Errorf("the layer is longer than the %d bytes its manifest says", v.layer.Size))
		return 0, v.err
	case errors.Is(err, io.EOF) && v.n < v.layer.Size && v.ctx.Err() != nil:
		// Our own end of the connection ended it; the other side only answered that in good order.
		v.err = v.client.bodyError(v.ctx, context.Cause(v.ctx), "the layer")
	case errors.Is(err, io.EOF) && v.n < v.layer.Size:
		v.err = &Error{
			Code: CodeTruncated, Host: v.client.repo.host,
			Err: fmt.Errorf("the layer ended after %d of %d bytes", v.n, v.layer.Size),
		}
	case errors.Is(err, io.EOF):
		if got := "sha256:" + hex.EncodeToString(v.hash.Sum(nil)); got != v.layer.Digest {
			v.err = v.mismatch(fmt.Errorf("the layer %s has the digest %s", v.layer.Digest, got))
		} else {
			v.err = io.EOF
		}
	case err != nil:
		v.err = v.client.bodyError(v.ctx, err, "the layer")
	}
	return n, v.err
}

func (v *verified) mismatch(err error) *Error {
	return &Error{
		Code: CodeDigestMismatch, Host: v.client.repo.host,
		Fix: "push the artifact again and check what stands between here and the registry", Err: err,
	}
}

func (v *verified) Close() error { return v.body.Close() }
