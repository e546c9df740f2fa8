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

// NewClient makes an HTTP client that ends every request after timeout, and reads every answer whole before anybody sees it.
func NewClient(t http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: whole{t, timeout},
		// A redirect would take a proof or a token to a host that was never checked.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// whole turns an answer that breaks off, never ends or takes too long into an error of the request. [http.Client] has a timeout too,
// but to every transport that is not its own that looks like a cancellation by the caller.
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

// Call sends the request that build makes. It is sent once more if there was no answer, or if the other side failed (HTTP 5xx). What was
// refused would be refused again, and throttling is for the cache to wait out.
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

// Passing reports whether a request that failed with err may be answered a moment later.
func Passing(err error) bool {
	_, refused := errors.AsType[*endpoint.AddressError](err)
	return !refused && !errors.Is(err, errBrokenOff) && !errors.Is(err, errTooLong) && !isTimeout(err)
}

// passing reports whether the other side's failure may be over a moment later.
func (a Answer) passing() bool {
	return a.Status >= http.StatusInternalServerError && a.Header.Get("Retry-After") == ""
}
