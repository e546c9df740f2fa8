package remote

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

const (
	// maxBody bounds an answer, in bytes. Tokens are a few kilobytes.
	maxBody = 1 << 20
	// pause is the longest wait before a request is made once more.
	pause = 200 * time.Millisecond
)

// Answer is what the other side said, read whole.
type Answer struct {
	// Status is the HTTP status.
	Status int
	// Header is the answer's.
	Header http.Header
	// Body is at most 1 MiB.
	Body []byte
}

// errBrokenOff is the end of a connection, and errTooLong the end of our patience, in the middle of an answer.
var (
	errBrokenOff = errors.New("the answer broke off")
	errTooLong   = errors.New("the answer is too long")
)

// NewClient is an HTTP client whose every request ends after timeout.
func NewClient(t http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: t,
		Timeout:   timeout,
		// A redirect would take a proof, or a token, to a host that nobody judged.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Call makes the request that build makes. One that nobody answered, or that the other side failed at (HTTP 5xx), is made once
// more; what it refused it refuses again, and what it throttles is for the cache to wait out.
func Call(ctx context.Context, client *http.Client, build func(context.Context) (*http.Request, error)) (Answer, error) {
	got, err := Try(ctx, client, build)
	if !passing(got, err) {
		return got, err
	}
	timer := time.NewTimer(rand.N(pause)) //nolint:gosec // jitter is no secret.
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return got, err
	case <-timer.C:
		return Try(ctx, client, build)
	}
}

// Try is [Call] without another attempt.
func Try(ctx context.Context, client *http.Client, build func(context.Context) (*http.Request, error)) (Answer, error) {
	request, err := build(ctx)
	if err != nil {
		return Answer{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return Answer{}, errBrokenOff
	case len(body) > maxBody:
		return Answer{}, errTooLong
	}
	return Answer{response.StatusCode, response.Header, body}, nil
}

// passing reports whether a fault may have passed a moment later.
func passing(got Answer, err error) bool {
	if err != nil {
		_, refused := errors.AsType[*endpoint.AddressError](err)
		return !refused && !errors.Is(err, errBrokenOff) && !errors.Is(err, errTooLong) && !isTimeout(err)
	}
	return got.Status >= http.StatusInternalServerError && got.Header.Get("Retry-After") == ""
}
