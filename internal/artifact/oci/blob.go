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

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// maxResumes bounds how often the transfer of one layer is resumed after a broken connection.
const maxResumes = 5

// Open returns the layer's bytes as they are transferred, and verifies them while they are read.
// io.EOF comes only after the announced length with the right digest. Any other end is an
// *origin.Error with CodeTruncated, CodeDigestMismatch or, if ctx ends, CodeUnreachable. A reader
// that stops before io.EOF has verified nothing. After a broken connection, the stream continues at
// the same offset (RFC 9110, "Range Requests"). The caller closes the stream.
func (c *Client) Open(ctx context.Context, layer Layer) (io.ReadCloser, error) {
	if err := checkDigest(layer.Digest); err != nil {
		return nil, c.protocol("the layer has no valid sha256 digest")
	}
	if layer.Size > c.maxLayer {
		return nil, c.failed(origin.CodeTooLarge, "the layer has %d bytes, more than %d", layer.Size, c.maxLayer)
	}
	resp, err := c.send(ctx, http.MethodGet, c.url("blobs", layer.Digest), targetBlob) //nolint:bodyclose // verified.Close does
	if err != nil {
		return nil, err
	}
	return &verified{ctx: ctx, client: c, layer: layer, body: resp.Body, hash: sha256.New()}, nil
}

// verified reads a layer's bytes. It returns io.EOF only if their length and digest are right.
type verified struct {
	ctx     context.Context //nolint:containedctx // tells a deadline from a broken connection; io.Reader takes none
	client  *Client
	layer   Layer
	body    io.ReadCloser
	hash    hash.Hash
	n       int64
	resumes int
	begun   int64 // offset at which the current transfer began
	err     error
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
		v.err = v.client.failed(origin.CodeDigestMismatch, "the layer is longer than the %d bytes its manifest says", v.layer.Size)
		return 0, v.err
	case errors.Is(err, io.EOF) && v.n < v.layer.Size:
		v.err = v.client.failed(origin.CodeTruncated, "the layer ended after %d of %d bytes", v.n, v.layer.Size)
	case errors.Is(err, io.EOF):
		if got := "sha256:" + hex.EncodeToString(v.hash.Sum(nil)); got != v.layer.Digest {
			v.err = v.client.failed(origin.CodeDigestMismatch, "the layer %s has the digest %s", v.layer.Digest, got)
		} else {
			v.err = io.EOF
		}
	case err != nil && (attempt.Explain(err).Cause == attempt.TooSlow || !v.resume()):
		v.err = v.client.bodyError(v.ctx, err, "the layer")
	}
	return n, v.err
}

// resume continues after a broken connection. It reports whether there is more to read. It gives up
// if the last transfer brought no bytes, so that a registry cannot keep the client busy.
func (v *verified) resume() bool {
	if v.ctx.Err() != nil || v.n == v.begun || v.n == v.layer.Size || v.resumes == maxResumes {
		return false
	}
	v.resumes++
	body, err := v.client.openAt(v.ctx, v.layer, v.n)
	if err != nil {
		return false
	}
	_ = v.body.Close() // reading the body has failed already, so ignore this error
	v.body, v.begun = body, v.n
	return true
}

// openAt returns the layer's bytes from an offset to the end.
func (c *Client) openAt(ctx context.Context, layer Layer, offset int64) (io.ReadCloser, error) {
	resp, err := c.do(ctx, request{
		method: http.MethodGet, url: c.url("blobs", layer.Digest), target: targetBlob,
		header: http.Header{"Range": {fmt.Sprintf("bytes=%d-", offset)}}, want: []int{http.StatusOK, http.StatusPartialContent},
	})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK { // a registry without range requests sends the whole layer
		_, err = io.CopyN(io.Discard, resp.Body, offset)
	} else if got := resp.Header.Get("Content-Range"); got != fmt.Sprintf("bytes %d-%d/%d", offset, layer.Size-1, layer.Size) {
		err = c.protocol("the registry sends another part of the layer than was asked for")
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp.Body, nil
}

func (v *verified) Close() error { return v.body.Close() }
