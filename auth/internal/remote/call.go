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

// Pause is the longest wait before a request is made once more.
const Pause = 200 * time.Millisecond

// NewClient is an HTTP client whose every request ends after timeout, and whose answers are read whole before anybody sees them.
func NewClient(t http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: whole{t, timeout},
		// A redirect would take a proof, or a token, to a host that nobody judged.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// whole makes an answer that breaks off, does not end or takes too long an error of the request. [http.Client] has a timeout too,
// but makes it look like a cancellation by the caller to all transports but its own.
type whole struct {
	next    http.RoundTripper
	timeout time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (w whole) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(request.Context(), w.timeout)
	defer cancel() // the answer is read by then
	response, err := w.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if _, err := read(response); err != nil {
		return nil, err
	}
	return response, nil
}

// Call makes the request that build makes. One that nobody answered, or that the other side failed at (HTTP 5xx), is made once
// more; what it refused it refuses again, and what it throttles is for the cache to wait out.
func Call(ctx context.Context, client *http.Client, build func(context.Context) (*http.Request, error)) (Answer, error) {
	got, err := Try(ctx, client, build)
	if err != nil && !Passing(err) || err == nil && !got.passing() {
		return got, err
	}
	timer := time.NewTimer(rand.N(Pause)) //nolint:gosec // jitter is no secret.
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
	body, err := io.ReadAll(response.Body) // from memory
	return Answer{response.StatusCode, response.Header, body}, err
}

// Passing reports whether a request without an answer may have one a moment later.
func Passing(err error) bool {
	_, refused := errors.AsType[*endpoint.AddressError](err)
	return !refused && !errors.Is(err, errBrokenOff) && !errors.Is(err, errTooLong) && !isTimeout(err)
}

// passing reports whether the other side's fault may have passed a moment later.
func (a Answer) passing() bool {
	return a.Status >= http.StatusInternalServerError && a.Header.Get("Retry-After") == ""
}
