package remote

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
	// MaxName bounds a name in an error, in bytes.
	MaxName = 253
	// MaxQuoted bounds what an error repeats of its input, in bytes.
	MaxQuoted = 80
)

// Failure is why a call did not bring what it was made for.
type Failure struct {
	// Where names the other side for people.
	Where string
	// Code classifies the failure.
	Code auth.Code
	// What says what happened, and Fix what to do about it.
	What, Fix string
	// RetryAfter is how long the other side asked to wait.
	RetryAfter time.Duration
	// Cause ended the context, if anything did.
	Cause error

	refused *endpoint.AddressError // What says it; nil for another failure
}

// Error makes the failure an error of an operation.
func (f Failure) Error(stage auth.Stage, operation string) *auth.Error {
	err := fmt.Errorf("%s, %s: %s", f.Where, operation, f.What)
	if f.refused != nil {
		err = &refusedError{err, f.refused}
	}
	if f.Cause != nil {
		err = fmt.Errorf("%w: %w", err, f.Cause)
	}
	return &auth.Error{Stage: stage, Code: f.Code, Fix: f.Fix, RetryAfter: f.RetryAfter, Err: err}
}

// refusedError has in its chain the refusal to connect, whose words it does not repeat.
type refusedError struct {
	error

	refused *endpoint.AddressError
}

func (e *refusedError) Unwrap() error { return e.refused }

// Unanswered is the failure of a call to where that ended with err and without an answer.
func Unanswered(ctx context.Context, err error, where string) Failure {
	f := Failure{Where: where, Code: auth.CodeUnreachable, Fix: "check that " + where + " can be reached from the controller"}
	refused, isRefused := errors.AsType[*endpoint.AddressError](err)
	switch cause := context.Cause(ctx); {
	case cause != nil:
		f.What, f.Cause = "no answer in time", cause
	case errors.Is(err, errTooLong):
		f.Code, f.What, f.Fix = auth.CodeResponseInvalid, errTooLong.Error(), checkWhatAnswers(where)
	case errors.Is(err, errBrokenOff):
		f.What = errBrokenOff.Error()
	case isRefused:
		f.refused = refused
		f.Code, f.What = auth.CodeEndpointRefused, "the address of "+Printable(refused.Host, MaxName)+" is "+refused.Kind
		f.Fix = "name a host or proxy that is reachable from outside, or have the administrator list it in --allowed-endpoint-hosts"
	default:
		f.What = disconnection(err)
	}
	return f
}

// Refusal is the failure of a call to where that was answered with an HTTP status other than success. Health names the page that shows
// how the service is.
func (a Answer) Refusal(where, health string) Failure {
	f := Failure{Where: where, What: "HTTP status " + strconv.Itoa(a.Status), RetryAfter: a.RetryAfter()}
	switch {
	case a.Status == http.StatusTooManyRequests:
		f.Code, f.Fix = auth.CodeThrottled, WaitForQuota(where)
	case a.Status >= http.StatusInternalServerError:
		f.Code, f.Fix = auth.CodeUnavailable, "wait, and see "+health+" if it goes on"
	default:
		f.Code, f.Fix = auth.CodeResponseInvalid, checkWhatAnswers(where)
		f.What = "an answer that is not the service's (HTTP status " + strconv.Itoa(a.Status) + ")"
	}
	return f
}

// Invalid is the failure of a call to where whose answer should contain wanted, such as "a token"; err says why it does not.
func Invalid(where, wanted string, err error) Failure {
	return Failure{Where: where, Code: auth.CodeResponseInvalid, What: "an answer without " + wanted + ": " + err.Error(), Fix: checkWhatAnswers(where)}
}

// WaitForQuota is what to do about throttling.
func WaitForQuota(where string) string { return "wait: " + where + " is asked too often for its quota" }

func checkWhatAnswers(where string) string { return "check what answers as " + where }

// disconnection says why there was no answer, in words that are the same each time and contain no address: a tenant who names a host
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

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Printable makes s one line of printable ASCII of at most that many bytes.
func Printable(s string, most int) string {
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
