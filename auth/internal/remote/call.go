package remote

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// Attempts is the maximum number of attempts to send a request.
const Attempts = 2

// NewClient makes an HTTP client that ends every request after timeout. The client returns an
// answer only after the whole answer was read.
func NewClient(t http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport: whole{t, timeout},
		// Following a redirect would send a proof or a token to a host that was never checked.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// whole is a transport that reads each answer to its end. A request fails if its answer breaks off,
// is longer than maxBody or takes longer than timeout.
//
// whole does not rely on the timeout of [http.Client]. At that timeout, http.Client closes the
// channel Request.Cancel of a request to a transport that it does not know, such as whole. The
// request could then fail as if the caller had cancelled it.
type whole struct {
	next    http.RoundTripper
	timeout time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (w whole) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(request.Context(), w.timeout)
	defer cancel() // runs after read(), which needs ctx
	response, err := w.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if _, err := read(response); err != nil {
		return nil, err
	}
	return response, nil
}

// Call sends the request that build makes. If package attempt expects a failure to pass, Call sends
// the request a second time. It does not repeat a throttled request (429), because package
// auth/cache waits before the next exchange.
func Call(ctx context.Context, client *http.Client, build func(context.Context) (*http.Request, error)) (got Answer, err error) {
	_ = attempt.Do(ctx, Attempts, func() (again bool) {
		if got, err = Try(ctx, client, build); err != nil {
			return attempt.Explain(err).Again()
		}
		return attempt.Again(got.Status, got.Header)
	})
	return got, err
}

// Try is [Call] with only one attempt.
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
	body, err := io.ReadAll(response.Body) // read from memory, because the transport has read the whole answer
	return Answer{response.StatusCode, response.Header, body}, err
}

// NewPost makes a request that posts body to target, and asks for JSON.
func NewPost(ctx context.Context, target, contentType, body string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	return request, nil
}
