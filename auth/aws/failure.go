package aws

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

const (
	// maxMessage bounds AWS's words in an error, in bytes.
	maxMessage = 300
	// maxName bounds a name in an error, in bytes.
	maxName = 253
	// maxRetryAfter bounds how long an answer can ask us to wait.
	maxRetryAfter = 15 * time.Minute
	// secretWindow is how much of a secret, in bytes, must not stand in an error.
	secretWindow = 12
)

// failure is an error of the SDK, taken apart. The SDK's own text is not used: it holds request IDs, which would make every
// error a new one, local addresses, and whatever the other side chose to repeat of what it was sent.
type failure struct {
	code auth.Code
	fix  string
	// api is AWS's error code; empty when there is none.
	api string
	// message is AWS's own words: printable, short, without secrets.
	message string
	// what says what happened where there is no api code.
	what       string
	where      string
	retryAfter time.Duration
	cause      error
}

// sortFailure takes apart err, which a call to where ended with. Nothing of the secrets gets into the result.
func sortFailure(ctx context.Context, err error, where string, secrets ...auth.Secret) failure {
	f := failure{where: where}
	if cause := context.Cause(ctx); cause != nil {
		f.code, f.what, f.cause = auth.CodeUnreachable, "no answer in time", cause
		f.fix = "check that " + where + " can be reached from the controller"
		return f
	}
	status := httpStatus(err)
	if status == 0 {
		f.code, f.what = auth.CodeUnreachable, disconnection(err)
		f.fix = "check that " + where + " can be reached from the controller"
		if _, sent := errors.AsType[*smithyhttp.RequestSendError](err); !sent {
			f.code, f.what, f.fix = auth.CodeRefused, "the request could not be made", "report this as a fault of Lanyard"
		}
		if refused, ok := errors.AsType[*endpoint.AddressError](err); ok {
			f.code, f.what = auth.CodeEndpointRefused, "the address of "+printable(refused.Host, maxName)+" is "+refused.Kind
			f.fix = "name a host that is reachable from outside, or have the administrator list it in --allowed-endpoint-hosts"
		}
		return f
	}
	if api := apiCode(err); api != "" {
		f.api = printable(api, maxName)
		if apiError, ok := errors.AsType[smithy.APIError](err); ok {
			f.message = clean(apiError.ErrorMessage(), secrets)
		}
	}
	f.what = "HTTP status " + strconv.Itoa(status)
	f.retryAfter = retryAfter(err)
	switch {
	case isThrottle(f.api, status):
		f.code, f.fix = auth.CodeThrottled, "wait, or raise the request quota of "+where
	case status >= http.StatusInternalServerError:
		f.code, f.fix = auth.CodeUnavailable, "wait, and see AWS's health dashboard if it goes on"
	case status >= http.StatusBadRequest:
		f.code, f.fix = auth.CodeRefused, "see the error code in the API reference of the service"
	case brokeOff(err):
		f.code, f.what, f.fix = auth.CodeUnreachable, "the answer broke off", "check that "+where+" can be reached from the controller"
	default:
		f.code, f.fix = auth.CodeResponseInvalid, "check what answers as "+where
		f.what = "an answer that is none of the service's (HTTP status " + strconv.Itoa(status) + ")"
	}
	return f
}

// error is the failure of an operation.
func (f failure) error(stage auth.Stage, operation string) *auth.Error {
	what := f.what
	if f.api != "" {
		what = f.api
	}
	if f.message != "" {
		what += ": " + f.message
	}
	err := fmt.Errorf("%s, %s: %s", f.where, operation, what)
	if f.cause != nil {
		err = fmt.Errorf("%w: %w", err, f.cause)
	}
	return &auth.Error{Stage: stage, Code: f.code, Fix: f.fix, RetryAfter: f.retryAfter, Err: err}
}

// apiCode is AWS's error code, or empty.
func apiCode(err error) string {
	apiError, ok := errors.AsType[smithy.APIError](err)
	// The SDK says so of an answer that is no error document of AWS's.
	if !ok || apiError.ErrorCode() == "UnknownError" {
		return ""
	}
	return apiError.ErrorCode()
}

// httpStatus is the status of the answer; zero when there was none.
func httpStatus(err error) int {
	if status, _ := responseOf(err); status != 0 {
		return status
	}
	type statusError interface {
		smithy.APIError
		HTTPStatusCode() int
	}
	// The client of container credentials has an error of its own.
	if e, ok := errors.AsType[statusError](err); ok {
		return e.HTTPStatusCode()
	}
	return 0
}

// responseOf is the answer that err came with, if any.
func responseOf(err error) (status int, header http.Header) {
	e, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok || e.Response == nil || e.Response.Response == nil {
		return 0, nil
	}
	return e.Response.StatusCode, e.Response.Header
}

func isThrottle(code string, status int) bool {
	if _, ok := retry.DefaultThrottleErrorCodes[code]; ok {
		return true
	}
	return status == http.StatusTooManyRequests
}

// retryAfter is the answer's Retry-After header (RFC 9110 §10.2.3), in seconds or as a date.
func retryAfter(err error) time.Duration {
	_, header := responseOf(err)
	value := header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.Atoi(value); err == nil {
		wait = time.Duration(min(seconds, int(maxRetryAfter.Seconds()))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = time.Until(date)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// disconnection says why there was no answer, in words that are the same each time and tell no address: who chooses a host
// must not learn what it resolves to.
func disconnection(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" {
		return "the proxy: " + disconnection(op.Err)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "the host's name does not exist"
		}
		return "the host's name could not be resolved"
	}
	if certificate, ok := errors.AsType[x509.CertificateInvalidError](err); ok && certificate.Reason == x509.Expired {
		return "the certificate has expired or is not yet valid"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an unknown authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is for another host"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not valid"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the other side does not speak TLS"
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case isTimeout(err):
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "the connection was closed"
	default:
		return "the connection failed"
	}
}

func brokeOff(err error) bool {
	_, ok := errors.AsType[*brokenOffError](err)
	return ok || isTimeout(err) // which http.Client puts in the place of ours
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// clean makes AWS's message fit for an error, or leaves it out when a piece of a secret is in it: services repeat what they
// were sent (SignatureDoesNotMatch repeats the session token).
func clean(message string, secrets []auth.Secret) string {
	for _, secret := range secrets {
		if holdsPiece(message, secret.Reveal()) {
			return ""
		}
	}
	return printable(message, maxMessage)
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

// printable makes one line of printable ASCII of at most that many bytes.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
