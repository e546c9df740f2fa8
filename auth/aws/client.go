package aws

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/lanyard-dev/lanyard/auth"
)

// maxBody bounds an answer, in bytes. Sessions and registry tokens are a few kilobytes.
const maxBody = 1 << 20

// stsClient is the HTTP client to the STS of request.
func (p *Provider) stsClient(request *auth.Request, chosen string) awssdk.HTTPClient {
	if request.ProxyURL == nil && chosen != "" {
		if target, err := url.Parse(chosen); err == nil {
			return p.client(p.pool.Host(target))
		}
	}
	return p.ownClient(request)
}

// ownClient is the HTTP client to AWS's own endpoints, through the proxy of the request if it has one.
func (p *Provider) ownClient(request *auth.Request) awssdk.HTTPClient {
	if request.ProxyURL != nil {
		return p.client(p.pool.Proxy(request.ProxyURL))
	}
	return p.client(p.pool.Own())
}

func (p *Provider) client(t *http.Transport) awssdk.HTTPClient {
	return &http.Client{
		Transport: bounded{t},
		Timeout:   p.timeout,
		// A redirect would take the proof, or a signature, to a host that nobody judged.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bounded ends an answer that is longer than any credential.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = &boundedBody{io.LimitReader(response.Body, maxBody), response.Body}
	}
	return response, err
}

type boundedBody struct {
	io.Reader
	io.Closer
}

// Read tells a connection that broke from an answer that is at fault.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &brokenOffError{err}
	}
	return n, err
}

// brokenOffError is the end of a connection in the middle of an answer.
type brokenOffError struct{ err error }

func (e *brokenOffError) Error() string { return "the answer broke off: " + e.err.Error() }
func (e *brokenOffError) Unwrap() error { return e.err }

// newRetryer repeats a request once if it did not reach AWS, or AWS failed. What AWS refused it refuses again (the SDK's own
// retryers take a rejected proof for a passing fault), and what it throttles is for the cache to wait out.
func newRetryer() awssdk.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 2
		o.Backoff = retry.NewExponentialJitterBackoff(200 * time.Millisecond)
		o.RateLimiter = ratelimit.None
		o.Retryables = []retry.IsErrorRetryable{
			retry.NoRetryCanceledError{},
			retry.IsErrorRetryableFunc(notThrottled),
			retry.RetryableConnectionError{},
			retry.RetryableHTTPStatusCode{Codes: retry.DefaultRetryableHTTPStatusCodes},
		}
	})
}

func notThrottled(err error) awssdk.Ternary {
	if isThrottle(apiCode(err), httpStatus(err)) {
		return awssdk.FalseTernary
	}
	return awssdk.UnknownTernary
}
