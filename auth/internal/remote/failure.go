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
	// MaxQuoted bounds what an error repeats of its input, in bytes.
	MaxQuoted = 80
)

// Failure is why a call gave no result.
type Failure struct {
	// Where names the other side for people.
	Where string
	// Code classifies the failure.
	Code auth.Code
	// What says what happened, and Fix how to correct it.
	What, Fix string
	// RetryAfter is how long the other side asked to wait.
	RetryAfter time.Duration
	// Cause ended the context, if anything did.
	Cause error

	refused *endpoint.AddressError // in words it is What; nil for another failure
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

// Refusal is the failure of a call to where that was answered with an HTTP status other than
// success. Health names the page that shows how the service is.
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

// Invalid is the failure of a call to where whose answer should contain wanted, such as "a token";
// err says why it does not.
func Invalid(where, wanted string, err error) Failure {
	return Failure{Where: where, Code: auth.CodeResponseInvalid, What: "an answer without " + wanted + ": " + err.Error(), Fix: checkServer(where)}
}

// WaitForQuota returns the fix for throttling.
func WaitForQuota(where string) string { return "wait: " + where + " is asked too often for its quota" }

func checkServer(where string) string { return "check which server answers as " + where }

func checkReach(where string) string {
	return "check that " + where + " can be reached from the controller"
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
