package aws

import (
	"net/url"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// stsClient is the HTTP client to the STS of request.
func (p *Provider) stsClient(request *auth.Request, chosen string) awssdk.HTTPClient {
	if request.ProxyURL == nil && chosen != "" {
		if target, err := url.Parse(chosen); err == nil {
			return p.calls.Host(target)
		}
	}
	return p.ownClient(request)
}

// ownClient is the HTTP client to AWS's own endpoints, through the proxy of the request if it has one.
func (p *Provider) ownClient(request *auth.Request) awssdk.HTTPClient {
	return p.calls.Via(request.ProxyURL)
}

// newRetryer repeats a request once if it did not reach AWS, or AWS failed. What AWS refused it refuses again (the SDK's own
// retryers take a rejected proof for a passing fault), and what it throttles is for the cache to wait out.
func newRetryer() awssdk.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 2
		o.Backoff = retry.NewExponentialJitterBackoff(remote.Pause)
		o.RateLimiter = ratelimit.None
		o.Retryables = []retry.IsErrorRetryable{
			retry.NoRetryCanceledError{},
			retry.IsErrorRetryableFunc(mayPass),
			retry.RetryableConnectionError{},
			retry.RetryableHTTPStatusCode{Codes: retry.DefaultRetryableHTTPStatusCodes},
		}
	})
}

// mayPass says what is not to be repeated; for the rest, others are asked.
func mayPass(err error) awssdk.Ternary {
	status, header := responseOf(err)
	if isThrottle(apiCode(err), status) || header.Get("Retry-After") != "" || status == 0 && !remote.Passing(err) {
		return awssdk.FalseTernary
	}
	return awssdk.UnknownTernary
}
