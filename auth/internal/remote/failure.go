package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

const (
	// MaxName bounds a name in an error, in bytes.
	MaxName = 253
	// MaxQuoted bounds the input that an error repeats, in bytes.
	MaxQuoted = 80
)

// Failure describes why a call gave no result.
type Failure struct {
	// Where names the called service for people, for example as "the metadata server".
	Where string
	// Code classifies the failure.
	Code auth.Code
	// What and Fix tell people what happened and how to correct it.
	What, Fix string
	// RetryAfter is how long the called service asked us to wait.
	RetryAfter time.Duration
	// Cause is the reason why the context ended, or nil if the context did not end.
	Cause error

	// refused is the refusal to connect to an address, or nil. The field What describes it.
	refused *endpoint.AddressError
}

// Error returns the failure as the error of an operation.
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

// refusedError lets errors.As find the AddressError. Error returns only the text of the embedded
// error, which already describes the refused address.
type refusedError struct {
	error

	refused *endpoint.AddressError
}

func (e *refusedError) Unwrap() error { return e.refused }

// Unanswered returns the failure of a call that ended with err, without an answer from the named
// service.
func Unanswered(ctx context.Context, err error, where string) Failure {
	why := attempt.Explain(err)
	f := Failure{Where: where, Code: auth.CodeUnreachable, What: why.Error(), Fix: why.Fix(attempt.Side{Name: where})}
	switch cause := context.Cause(ctx); {
	case cause != nil:
		f.What, f.Fix, f.Cause = "no answer in time", checkReach(where), cause
	case errors.Is(err, errTooLong):
		f.Code, f.What, f.Fix = auth.CodeResponseInvalid, errTooLong.Error(), checkServer(where)
	case errors.Is(err, errBrokenOff):
		f.What, f.Fix = errBrokenOff.Error(), checkReach(where)
	case why.Cause == attempt.AddressNotAllowed:
		f.Code = auth.CodeEndpointRefused
		f.refused, _ = errors.AsType[*endpoint.AddressError](err)
	}
	return f
}

// Refusal returns the failure for an answer of the named service with an HTTP status other than
// success. If the service itself failed (5xx), the fix refers to the page that shows its health.
func (a Answer) Refusal(where, health string) Failure {
	f := Failure{Where: where, What: "HTTP status " + strconv.Itoa(a.Status), RetryAfter: a.RetryAfter()}
	switch {
	case a.Status == http.StatusTooManyRequests:
		f.Code, f.Fix = auth.CodeThrottled, WaitForQuota(where)
	case a.Status >= http.StatusInternalServerError:
		f.Code, f.Fix = auth.CodeUnavailable, "wait, and see "+health+" if the failure persists"
	default:
		f.Code, f.Fix = auth.CodeResponseInvalid, checkServer(where)
		f.What = "an answer that is not the service's (HTTP status " + strconv.Itoa(a.Status) + ")"
	}
	return f
}

// Invalid returns the failure for an answer of the named service that lacks the wanted content,
// such as "a token". The failure's text includes that of err.
func Invalid(where, wanted string, err error) Failure {
	return Failure{
		Where: where, Code: auth.CodeResponseInvalid, What: "an answer without " + wanted + ": " + err.Error(), Fix: checkServer(where),
	}
}

// WaitForQuota returns the fix for throttling.
func WaitForQuota(where string) string { return "wait: " + where + " is asked too often for its quota" }

func checkServer(where string) string { return "check which server answers as " + where }

func checkReach(where string) string {
	return "check that " + where + " can be reached from the controller"
}

// Printable returns s as one line of printable ASCII. A line that is longer than the given number
// of bytes is cut to that number, and "..." is appended.
func Printable(s string, most int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }), " ")
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
