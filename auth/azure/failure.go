package azure

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

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

const (
	// maxName bounds a name in an error, in bytes.
	maxName = 253
	// maxQuoted bounds what an error repeats of its input, in bytes.
	maxQuoted = 80
	// maxRetryAfter bounds how long an answer can ask us to wait.
	maxRetryAfter = 15 * time.Minute
)

// failure is why a call to where ended without a token. Its words are our own: those of the other side hold IDs and times, which
// would make every error a new one, and whatever it chose to repeat of what it was sent.
type failure struct {
	where      string
	code       auth.Code
	what, fix  string
	retryAfter time.Duration
	cause      error
}

// error is the failure of an operation.
func (f failure) error(stage auth.Stage, operation string) *auth.Error {
	err := fmt.Errorf("%s, %s: %s", f.where, operation, f.what)
	if f.cause != nil {
		err = fmt.Errorf("%w: %w", err, f.cause)
	}
	return &auth.Error{Stage: stage, Code: f.code, Fix: f.fix, RetryAfter: f.retryAfter, Err: err}
}

// unanswered is the failure of a call that got no answer.
func unanswered(ctx context.Context, err error, where string) failure {
	f := failure{where: where, code: auth.CodeUnreachable, fix: "check that " + where + " can be reached from the controller"}
	refused := refusedAddress(err)
	switch cause := context.Cause(ctx); {
	case cause != nil:
		f.what, f.cause = "no answer in time", cause
	case errors.Is(err, errTooLong):
		f.code, f.what, f.fix = auth.CodeResponseInvalid, err.Error(), "check what answers as "+where
	case errors.Is(err, errBrokenOff):
		f.what = err.Error()
	case refused != nil:
		f.code, f.what = auth.CodeEndpointRefused, "the address of "+printable(refused.Host, maxName)+" is "+refused.Kind
		f.fix = "name a proxy that is reachable from outside, or have the administrator list it in --allowed-endpoint-hosts"
	default:
		f.what = disconnection(err)
	}
	return f
}

// refusal is the failure of a call whose answer is no success, as far as HTTP says.
func (a answer) refusal(where string) failure {
	f := failure{where: where, what: "HTTP status " + strconv.Itoa(a.status), retryAfter: a.retryAfter()}
	switch {
	case a.status == http.StatusTooManyRequests:
		f.code, f.fix = auth.CodeThrottled, "wait: "+where+" is asked too often"
	case a.status >= http.StatusInternalServerError:
		f.code, f.fix = auth.CodeUnavailable, "wait, and see status.azure.com if it goes on"
	default:
		f.code, f.fix = auth.CodeResponseInvalid, "check what answers as "+where
		f.what = "an answer that is none of the service's (HTTP status " + strconv.Itoa(a.status) + ")"
	}
	return f
}

// retryAfter is the Retry-After header (RFC 9110 §10.2.3), in seconds or as a date.
func (a answer) retryAfter() time.Duration {
	value := a.header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.Atoi(value); err == nil {
		wait = time.Duration(min(seconds, int(maxRetryAfter.Seconds()))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = time.Until(date)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// invalid is the failure of a call whose answer should be a token and is none.
func invalid(where string, err error) failure {
	return failure{where: where, code: auth.CodeResponseInvalid, what: "an answer without a token: " + err.Error(), fix: "check what answers as " + where}
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

// refusedAddress is the refusal of an address that a proxy of a tenant's has, or nil.
func refusedAddress(err error) *endpoint.AddressError {
	refused, _ := errors.AsType[*endpoint.AddressError](err)
	return refused
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
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
