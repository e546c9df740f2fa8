// Package attempt decides whether another attempt to send a request may follow, and when. It also
// says why an attempt had no answer.
//
// Exchanges of credentials and requests for artifacts share the package. So both retry equally
// often, and report failures in the same words.
//
// Another attempt is made only after a failure that may pass within a second:
//
//   - a connection that was refused or closed, or an address without a route
//   - a resolver that failed
//   - the HTTP status of an overload or a fault: 408, 500, 502, 503 or 504
//
// Amazon S3 ("Best practices design patterns"), Azure Blob Storage (503 Server Busy) and Google
// Cloud Storage ("Retry strategy") ask clients for such retries. There is no other attempt after
//
//   - a refusal by TLS, the dial guard or DNS: another attempt would be refused too;
//   - a time-out, which has already used the available time;
//   - an answer with Retry-After: the caller must wait for this pause;
//   - 429: another attempt would use up the quota further;
//   - an unknown error.
package attempt

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	// Reads is the maximum number of attempts for a reading request.
	Reads = 3
	// FirstPause is the pause before the second attempt. A random time of up to a quarter of the
	// pause is added.
	FirstPause = 100 * time.Millisecond
	// Factor is the ratio of each further pause to the previous pause.
	Factor = 3
)

// MaxRetryAfter is the longest pause that [RetryAfter] returns.
const MaxRetryAfter = time.Hour

// maxDrained bounds how much of an unwanted answer is read, in bytes. An answer that is read to its
// end leaves a connection that can be used again.
const maxDrained = 64 << 10

// Do makes at most the given number of attempts. Each attempt is a call of the given function,
// which returns whether another attempt may follow. Do returns nil after the last attempt. If ctx
// ends during a pause, Do returns context.Cause(ctx).
func Do(ctx context.Context, most int, once func() (again bool)) error {
	pause := FirstPause
	for n := 1; once() && n < most && ctx.Err() == nil; n++ {
		if err := wait(ctx, pause+rand.N(pause/4)); err != nil { //nolint:gosec // jitter, not a secret
			return err
		}
		pause *= Factor
	}
	return nil
}

// wait waits for d and returns nil. If ctx ends earlier, it returns context.Cause(ctx).
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RoundTrip sends a request through next. It makes up to [Reads] attempts for a GET or HEAD without
// a body, and one attempt for any other request. It returns the result of the last attempt. If the
// request's context ends during a pause between attempts, RoundTrip returns the context's cause.
// Reading the answer's body fails if the body arrives slower than [MinRate]. The caller must close
// the body.
func RoundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	var resp *http.Response
	var err error
	ended := Do(req.Context(), Reads, func() bool {
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, maxDrained)
			_ = resp.Body.Close()
		}
		resp, err = roundTrip(next, req) //nolint:bodyclose // the next attempt or the caller closes the body
		return isRead(req) && again(resp, err)
	})
	if ended == nil {
		return resp, err
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
	return nil, ended
}

// isRead reports whether the request only reads: a GET or HEAD without a body.
func isRead(req *http.Request) bool {
	return (req.Method == http.MethodGet || req.Method == http.MethodHead) && req.Body == nil
}

func again(resp *http.Response, err error) bool {
	if err != nil {
		return Explain(err).Again()
	}
	return Again(resp.StatusCode, resp.Header)
}

// Again reports whether another attempt may follow an answer with this status and header.
func Again(status int, header http.Header) bool {
	return isPassing(status) && header.Get("Retry-After") == ""
}

// isPassing reports whether the status means an overload or a fault, which may pass within a
// second.
func isPassing(status int) bool {
	return slices.Contains([]int{
		http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, status)
}

// RetryAfter returns the pause in the header Retry-After (RFC 9110 §10.2.3), which is in seconds or
// a date. The pause is at most [MaxRetryAfter], and 0 if the header is missing or malformed.
func RetryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(seconds, 0), int(MaxRetryAfter.Seconds()))) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(time.Until(date), 0), MaxRetryAfter)
	}
	return 0
}
