package azure

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

const (
	// maxBody bounds an answer, in bytes. Tokens are a few kilobytes.
	maxBody = 1 << 20
	// pause is the longest wait before a request is made once more.
	pause = 200 * time.Millisecond
)

// answer is what the other side said, read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// errBrokenOff is the end of a connection, and errTooLong the end of our patience, in the middle of an answer.
var (
	errBrokenOff = errors.New("the answer broke off")
	errTooLong   = errors.New("the answer is too long")
)

// post sends a form, through the proxy of the request if it has one. A request that nobody answered, or that the other side
// failed at (HTTP 5xx), is made once more; what it refused it refuses again, and what it throttles is for the cache to wait out.
func (p *Provider) post(ctx context.Context, request *auth.Request, target string, form url.Values) (answer, error) {
	t := p.pool.Own()
	if request.ProxyURL != nil {
		t = p.pool.Proxy(request.ProxyURL)
	}
	client := newClient(t)
	got, err := p.attempt(ctx, client, target, form)
	if !passing(got, err) {
		return got, err
	}
	select {
	case <-ctx.Done():
		return got, err
	case <-time.After(rand.N(pause)): //nolint:gosec // jitter is no secret.
		return p.attempt(ctx, client, target, form)
	}
}

// passing reports whether a fault may have passed a moment later.
func passing(got answer, err error) bool {
	if err != nil {
		return !errors.Is(err, errBrokenOff) && !errors.Is(err, errTooLong) && !isTimeout(err) && refusedAddress(err) == nil
	}
	return got.status >= http.StatusInternalServerError && got.header.Get("Retry-After") == ""
}

func (p *Provider) attempt(ctx context.Context, client *http.Client, target string, form url.Values) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	return read(response)
}

// read takes an answer whole, or says why not.
func read(response *http.Response) (answer, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return answer{}, errBrokenOff
	case len(body) > maxBody:
		return answer{}, errTooLong
	}
	return answer{response.StatusCode, response.Header, body}, nil
}

func newClient(t http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: t,
		// A redirect would take the proof, or a token, to a host that nobody judged.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
