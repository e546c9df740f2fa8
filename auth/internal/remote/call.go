package remote

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// Attempts is how often a request is sent at most.
const Attempts = 2

// NewClient makes an HTTP client that ends every request after timeout, and reads every answer
// whole before anybody sees it.
func NewClient(t http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: whole{t, timeout},
		// A redirect would take a proof or a token to a host that was never checked.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// whole turns an answer that breaks off, never ends or takes too long into an error of the request.
// [http.Client] has a timeout too, but to every transport that is not its own that looks like a
// cancellation by the caller.
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

// Call sends the request that build makes, and sends it once more if package attempt says so.
// Throttling is for the cache to wait out.
func Call(ctx context.Context, client *http.Client, build func(context.Context) (*http.Request, error)) (got Answer, err error) {
	_ = attempt.Do(ctx, Attempts, func() (again bool) {
		if got, err = Try(ctx, client, build); err != nil {
			return attempt.Explain(err).Again()
		}
		return attempt.Again(got.Status, got.Header)
	})
	return got, err
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
