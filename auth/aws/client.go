package aws

import (
	"net/url"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// stsClient returns the HTTP client for the request's STS. If the call names an STS endpoint,
// chosen is the endpoint's URL; otherwise chosen is empty.
func (p *Provider) stsClient(request *auth.Request, chosen string) awssdk.HTTPClient {
	if request.ProxyURL == nil && chosen != "" {
		if target, err := url.Parse(chosen); err == nil {
			return p.calls.Host(target)
		}
	}
	return p.calls.Via(request.ProxyURL)
}

// newRetryer returns a retryer that repeats a request once, if package attempt permits it. It does
// not repeat these requests:
//
//   - A refused request. The SDK's own retryers would send a rejected JWT again.
//   - A throttled request. The cache waits before the next call.
func newRetryer() awssdk.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = remote.Attempts
		o.Backoff = retry.NewExponentialJitterBackoff(attempt.FirstPause)
		o.RateLimiter = ratelimit.None
		o.Retryables = []retry.IsErrorRetryable{retry.NoRetryCanceledError{}, retry.IsErrorRetryableFunc(again)}
	})
}

// again reports whether a request that failed with err may be repeated.
func again(err error) awssdk.Ternary {
	status, header := responseOf(err)
	switch {
	case status == 0:
		return awssdk.BoolTernary(attempt.Explain(err).Again())
	case isThrottle(apiCode(err), status):
		return awssdk.FalseTernary
	default:
		return awssdk.BoolTernary(attempt.Again(status, header))
	}
}
