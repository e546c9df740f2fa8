package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

const (
	// smallBlob is a size in bytes. A blob of at most this size is sent in the request that
	// completes its upload. This saves a request, but the upload cannot be continued.
	smallBlob = 1 << 20
	// maxContinued is the maximum number of times that one call of [uploading.fill] sends content.
	maxContinued = 20
)

// blob is content to upload.
type blob struct {
	digest   string
	size     int64
	content  io.ReaderAt
	progress func(done int64) // may be nil
}

// from returns the content from an offset to the end.
func (b blob) from(offset int64) io.Reader {
	section := io.NewSectionReader(b.content, offset, b.size-offset)
	if b.progress == nil {
		return section
	}
	return &counter{next: section, done: offset, report: b.progress}
}

// counter is a reader that reports its offset.
type counter struct {
	next   io.Reader
	done   int64
	report func(done int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.next.Read(p)
	c.done += int64(n)
	c.report(c.done)
	return n, err
}

// uploadAll uploads blobs into the repository in parallel. The first failure ends the other
// uploads. uploadAll returns this failure when all uploads have ended.
func (c *Client) uploadAll(ctx context.Context, blobs ...blob) error {
	group, all := errgroup.WithContext(ctx)
	for _, b := range blobs {
		group.Go(func() error { return c.upload(all, b) })
	}
	return group.Wait()
}

// upload uploads a blob unless the repository has it (OCI distribution specification, "Push"). It
// continues an upload that broke off if the registry still has that upload.
func (c *Client) upload(ctx context.Context, b blob) error {
	if has, err := c.has(ctx, b.digest); has || err != nil {
		return err
	}
	u := uploading{client: c, blob: b}
	if b.size > smallBlob {
		u.find(ctx)
	}
	err := u.repeat(ctx)
	if u.continued && origin.CodeOf(err) == origin.CodeProtocol {
		// The part that the registry had was wrong, so everything is sent again.
		u.forget()
		err = u.repeat(ctx)
	}
	return err
}

// has reports whether the repository has a blob.
func (c *Client) has(ctx context.Context, digest string) (bool, error) {
	resp, err := c.send(ctx, http.MethodHead, c.url("blobs", digest), targetBlob)
	switch {
	case err == nil:
		return true, resp.Body.Close()
	case origin.CodeOf(err) == origin.CodeBlobNotFound || origin.CodeOf(err) == origin.CodeNotFound:
		return false, nil
	default:
		return false, err
	}
}

// uploading is the state of one upload.
type uploading struct {
	client   *Client
	blob     blob
	location *url.URL // URL of the next request; nil before the upload begins
	offset   int64    // number of bytes that the registry has
	// continued says that offset was reported by the registry, which has kept the bytes of an
	// interrupted request. These bytes may be wrong.
	continued bool
}

// find continues the upload of an earlier Push. If that upload cannot be used, a new one begins.
func (u *uploading) find(ctx context.Context) {
	kept := u.client.uploads.location(u.client.repo, u.blob.digest)
	location, err := url.Parse(kept)
	if kept == "" || err != nil || !u.client.session.isHome(location) {
		return
	}
	u.location = location
	if err := u.ask(ctx); err != nil {
		u.forget()
	}
}

// forget makes the upload begin again.
func (u *uploading) forget() {
	u.location, u.offset = nil, 0
	u.client.uploads.forget(u.client.repo, u.blob.digest)
}

// repeat calls [uploading.run], and calls it again after a failure that may pass within a second.
func (u *uploading) repeat(ctx context.Context) (err error) {
	ended := attempt.Do(ctx, attempt.Reads, func() bool {
		err = u.run(ctx)
		if u.blob.size <= smallBlob {
			u.location = nil // begin again: the registry may have an unknown part of the blob
		}
		return mayPass(err)
	})
	if ended != nil {
		return u.client.session.requestError(ctx, ended, targetUpload)
	}
	return err
}

// run sends what the registry does not have, and completes the upload.
func (u *uploading) run(ctx context.Context) error {
	if u.location == nil {
		if err := u.begin(ctx); err != nil {
			return err
		}
	}
	if u.blob.size > smallBlob {
		if err := u.fill(ctx); err != nil {
			return err
		}
	}
	return u.complete(ctx)
}

// begin asks the registry for the URL of a new upload.
func (u *uploading) begin(ctx context.Context) error {
	uploads := u.client.url("blobs", "uploads")
	uploads.Path += "/"
	resp, err := u.client.repeat(ctx, request{
		method: http.MethodPost, url: uploads, target: targetUpload, want: []int{http.StatusAccepted},
	})
	if err != nil {
		return err
	}
	if err := u.proceed(resp); err != nil {
		return err
	}
	if u.blob.size > smallBlob && u.client.session.isHome(u.location) {
		u.client.uploads.keep(u.client.repo, u.blob.digest, u.location.String())
	}
	return nil
}

// proceed takes the next URL of the upload from an answer, and closes the answer.
func (u *uploading) proceed(resp *http.Response) error {
	defer resp.Body.Close() //nolint:errcheck // nothing is read
	ref, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return u.client.protocol("the registry does not say where the upload goes on")
	}
	next := resp.Request.URL.ResolveReference(ref)
	if u.client.session.isHome(next) {
		// A registry behind a TLS-terminating proxy writes http into the URL, so the scheme of base
		// is used.
		next.Scheme = u.client.base.Scheme
	}
	u.location = next
	return nil
}

// fill sends the content. After a broken connection, it sends only what the registry does not have.
func (u *uploading) fill(ctx context.Context) error {
	stuck := 0
	for range maxContinued {
		if u.offset == u.blob.size {
			return nil
		}
		before := u.offset
		err := u.send(ctx)
		if err == nil {
			return nil
		}
		if !mayContinue(err) || ctx.Err() != nil {
			return err
		}
		if asked := u.ask(ctx); ctx.Err() != nil {
			return asked // do not forget the upload: a later Push can continue it
		} else if asked != nil {
			u.forget()
			if again := u.begin(ctx); again != nil {
				return errors.Join(err, again)
			}
		}
		if u.offset > before {
			stuck = 0
		} else if stuck++; stuck == attempt.Reads {
			return err
		}
	}
	return u.client.protocol(fmt.Sprintf("the upload broke off more than %d times", maxContinued))
}

// mayContinue reports whether an upload may continue after an error. It may in these cases:
//   - the connection ended
//   - the request may succeed if it is sent again at once
//   - the registry did not expect this part of the content
//   - the registry has given up the upload
func mayContinue(err error) bool {
	e, ok := errors.AsType[*origin.Error](err)
	if !ok {
		return false
	}
	failure, ok := errors.AsType[*attempt.Failure](e.Err)
	return mayPass(err) || ok && failure.Cause == attempt.Unknown ||
		e.Status == http.StatusRequestedRangeNotSatisfiable || e.Status == http.StatusNotFound
}

// send sends the rest of the content in one request.
func (u *uploading) send(ctx context.Context) error {
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	// Send a whole blob without Content-Range, like Docker's clients: all registries accept that.
	if u.offset > 0 {
		header.Set("Content-Range", fmt.Sprintf("%d-%d", u.offset, u.blob.size-1))
	}
	offset := u.offset
	resp, err := u.client.do(ctx, request{
		method: http.MethodPatch, url: *u.location, target: targetUpload, header: header,
		body: func() io.Reader { return u.blob.from(offset) }, size: u.blob.size - offset,
		want: []int{http.StatusAccepted, http.StatusNoContent, http.StatusCreated},
	})
	if err != nil {
		return err
	}
	u.offset = u.blob.size
	return u.proceed(resp)
}

// ask asks the registry how many bytes of the upload it has.
func (u *uploading) ask(ctx context.Context) error {
	resp, err := u.client.do(ctx, request{
		method: http.MethodGet, url: *u.location, target: targetUpload,
		want: []int{http.StatusNoContent, http.StatusAccepted, http.StatusOK},
	})
	if err != nil {
		return err
	}
	end, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimPrefix(resp.Header.Get("Range"), "bytes="), "0-"), 10, 64)
	// The range "0-0" means one byte, but some registries also send it if they have no bytes. So it
	// counts as no answer.
	if err != nil || end <= 0 || end >= u.blob.size {
		_ = resp.Body.Close()
		return u.client.protocol("the registry does not say how far the upload is")
	}
	if resp.Header.Get("Location") == "" {
		resp.Header.Set("Location", u.location.String())
	}
	if err := u.proceed(resp); err != nil {
		return err
	}
	u.offset, u.continued = end+1, true
	return nil
}

// complete ends the upload: the registry checks the digest and stores the blob.
func (u *uploading) complete(ctx context.Context) error {
	location := *u.location
	query := location.Query()
	query.Set("digest", u.blob.digest)
	location.RawQuery = query.Encode()
	r := request{
		method: http.MethodPut, url: location, target: targetUpload, want: []int{http.StatusCreated, http.StatusNoContent},
		header: http.Header{"Content-Type": {"application/octet-stream"}},
		body:   func() io.Reader { return http.NoBody },
	}
	if u.blob.size <= smallBlob {
		r.body, r.size = func() io.Reader { return u.blob.from(0) }, u.blob.size
	}
	resp, err := u.client.do(ctx, r)
	if err != nil && mayPass(err) {
		// The registry may have stored the blob although its answer was lost.
		if has, _ := u.client.has(ctx, u.blob.digest); has {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	u.client.uploads.forget(u.client.repo, u.blob.digest)
	if resp == nil {
		return nil
	}
	_ = resp.Body.Close()
	return u.client.checkStored(resp, u.blob.digest)
}

// checkStored returns an error if the registry says that it has stored another digest.
func (c *Client) checkStored(resp *http.Response, digest string) error {
	if got := resp.Header.Get("Docker-Content-Digest"); got != "" && got != digest {
		return c.failed(origin.CodeDigestMismatch, "the registry has stored %s as %q", digest, c.session.clean(got))
	}
	return nil
}
