package aws

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

const (
	// maxMessage bounds AWS's text in an error, in bytes.
	maxMessage = 300
	// secretWindow is the length, in bytes, of the smallest piece of a secret that must not appear
	// in an error.
	secretWindow = 12
)

// failure has the parts of an error of the SDK. The SDK's own text is not used. It contains local
// addresses, and request IDs that make every error different. It may also repeat what was sent.
type failure struct {
	remote.Failure

	// api is AWS's error code; empty when there is none.
	api string
	// message is AWS's own text: printable, short, without secrets.
	message string
}

// classify returns the failure for err. The failure names the service whose call failed (where),
// and contains no piece of the secrets.
func classify(ctx context.Context, err error, where string, secrets ...auth.Secret) failure {
	status, header := responseOf(err)
	if status == 0 || context.Cause(ctx) != nil {
		f := failure{Failure: remote.Unanswered(ctx, err, where)}
		if _, sent := errors.AsType[*smithyhttp.RequestSendError](err); !sent && f.Cause == nil {
			f.Code, f.What, f.Fix = auth.CodeRefused, "the request could not be made", "report this as a fault of Lanyard"
		}
		return f
	}
	f := failure{Failure: remote.Answer{Status: status, Header: header}.Refusal(where, "AWS's health dashboard")}
	if api := apiCode(err); api != "" {
		f.api = remote.Printable(api, remote.MaxName)
		if apiError, ok := errors.AsType[smithy.APIError](err); ok {
			f.message = clean(apiError.ErrorMessage(), secrets)
		}
	}
	switch {
	case isThrottle(f.api, status):
		f.Code, f.Fix = auth.CodeThrottled, remote.WaitForQuota(where)
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		f.Code, f.What, f.Fix = auth.CodeRefused, "HTTP status "+strconv.Itoa(status), "see the error code in the API reference of the service"
	}
	return f
}

// error returns the failure of an operation as an [auth.Error].
func (f failure) error(stage auth.Stage, operation string) *auth.Error {
	if f.api != "" {
		f.What = f.api
	}
	if f.message != "" {
		f.What += ": " + f.message
	}
	return f.Error(stage, operation)
}

// apiCode returns AWS's error code, or empty.
func apiCode(err error) string {
	apiError, ok := errors.AsType[smithy.APIError](err)
	// The SDK uses the code UnknownError for an answer that is not an error document of AWS.
	if !ok || apiError.ErrorCode() == "UnknownError" {
		return ""
	}
	return apiError.ErrorCode()
}

// responseOf returns the status and the header of the answer in err. Without an answer the status
// is zero.
func responseOf(err error) (status int, header http.Header) {
	if e, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && e.Response != nil && e.Response.Response != nil {
		return e.Response.StatusCode, e.Response.Header
	}
	type statusError interface {
		smithy.APIError
		HTTPStatusCode() int
	}
	// The SDK's client for container credentials has its own error type.
	if e, ok := errors.AsType[statusError](err); ok {
		return e.HTTPStatusCode(), nil
	}
	return 0, nil
}

func isThrottle(code string, status int) bool {
	_, throttles := retry.DefaultThrottleErrorCodes[code]
	return throttles || status == http.StatusTooManyRequests
}

// clean returns AWS's message in a form that is safe to print. It returns an empty string if the
// message contains a piece of a secret. Services repeat what they were sent: for example,
// SignatureDoesNotMatch repeats the session token.
func clean(message string, secrets []auth.Secret) string {
	if longest := 2 * maxMessage; len(message) > longest {
		// Cut the message before the search, because the server chooses its length. holdsPiece
		// searches the whole message again for each piece of a secret.
		message = message[:longest]
	}
	for _, secret := range secrets {
		if holdsPiece(message, secret.Reveal()) {
			return ""
		}
	}
	return remote.Printable(message, maxMessage)
}

func holdsPiece(message, secret string) bool {
	window := min(secretWindow, len(secret))
	for i := 0; window > 0 && i+window <= len(secret); i++ {
		if strings.Contains(message, secret[i:i+window]) {
			return true
		}
	}
	return false
}
