// Package attempt judges attempts to send a request: why an attempt had no answer, whether another
// attempt may follow, and when.
//
// Exchanges of credentials and requests for artifacts share the package, so both retry equally
// often and report failures in the same words.
//
// Another attempt follows only a failure that may pass within a second. Such failures are a
// connection that was refused or closed, and a resolver that failed. The HTTP statuses of an
// overload or a fault (408, 500, 502, 503, 504) are such failures too. Amazon S3 ("Best practices
// design patterns"), Azure Blob Storage (503 Server Busy) and Google Cloud Storage ("Retry
// strategy") ask for the same. No other attempt follows
//
//   - what TLS, the dial guard or DNS decided: it would be decided again;
//   - a time-out, which has already used the time that there was;
//   - an answer with Retry-After: the caller keeps that pause;
//   - 429, a quota that another attempt would use up further;
//   - an error that is not known here.
package attempt

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// Reads is how often a reading request is sent at most.
	Reads = 3
	// FirstPause is the pause before the second attempt. Up to a quarter is added by chance.
	FirstPause = 100 * time.Millisecond
	// Factor is how much longer each further pause is.
	Factor = 3
)

// MaxRetryAfter is the longest pause that [RetryAfter] returns.
const MaxRetryAfter = time.Hour

// maxDrained bounds what is read of an answer that nobody wants, in bytes, so that its connection
// can be used again.
const maxDrained = 64 << 10

// Do calls once up to most times, for as long as once asks for another attempt. It returns nil
// after the last attempt, or the cause of ctx's end during a pause.
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

// wait returns nil after d, or the cause of ctx's end before that.
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

// RoundTrip sends a request through next: a reading one up to [Reads] times, any other once. It
// returns the outcome of the last attempt, or the cause of the context's end during a pause.
func RoundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	var resp *http.Response
	var err error
	ended := Do(req.Context(), Reads, func() bool {
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, maxDrained)
			_ = resp.Body.Close()
		}
		resp, err = next.RoundTrip(req) //nolint:bodyclose // closed above, or the caller's
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

// isRead reports whether the request changes nothing at the other side.
func isRead(req *http.Request) bool {
	return (req.Method == http.MethodGet || req.Method == http.MethodHead) && req.Body == nil
}

func again(resp *http.Response, err error) bool {
	if err != nil {
		return Explain(err).Again()
	}
	return Again(resp.StatusCode, resp.Header)
}

// Again reports whether another attempt may follow an answer.
func Again(status int, header http.Header) bool {
	return isPassing(status) && header.Get("Retry-After") == ""
}

// isPassing reports whether the status is that of an overload or a fault, which may pass within a
// second.
func isPassing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// RetryAfter reads the header of that name (RFC 9110 §10.2.3), in seconds or as a date. It returns
// a pause of at most [MaxRetryAfter], and 0 if the header is missing or cannot be read.
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
