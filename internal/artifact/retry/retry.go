// Package retry says whether, when and how a request for an artifact is repeated, to whichever service it goes.
//
// What may pass within a second is tried [Attempts] times: lost connections, and the statuses of an overload or a fault (408, 500, 502,
// 503, 504), as Amazon S3 ("Best practices design patterns": 503 Slow Down), Azure Blob Storage (503 Server Busy) and Google Cloud
// Storage ("Retry strategy") ask for. What is not: a service that names a pause (Retry-After) is left alone for it; 429 is a quota
// that does not come back in a second, and asking again uses it up further; 501 and its like are no accidents. Both is for
// whoever knows what else there is to do meanwhile: the reconciler, which keeps the pause.
package retry

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// How often something is tried, and the pauses between: 100 ms, then three times as long, and up to a quarter more by chance.
const (
	Attempts   = 3
	FirstPause = 100 * time.Millisecond
	Factor     = 3
)

// MaxAfter bounds what is believed of a service's Retry-After.
const MaxAfter = time.Hour

// maxDrained bounds what is read of an answer that nobody wants, in bytes, so that its connection can be used again.
const maxDrained = 64 << 10

// Do tries once, and again while once says so. It returns after the last attempt, or the cause of ctx's end during a pause.
func Do(ctx context.Context, once func() (again bool)) error {
	pause := FirstPause
	for attempt := 1; once() && attempt < Attempts && ctx.Err() == nil; attempt++ {
		if err := wait(ctx, pause+rand.N(pause/4)); err != nil { //nolint:gosec // jitter, not a secret
			return err
		}
		pause *= Factor
	}
	return nil
}

// RoundTrip sends a request through next, and again by the package's rule if it is a reading one. Its outcome is the last attempt's, or
// the cause of the context's end during a pause.
func RoundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	var resp *http.Response
	var err error
	ended := Do(req.Context(), func() bool {
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, maxDrained)
			_ = resp.Body.Close()
		}
		resp, err = next.RoundTrip(req) //nolint:bodyclose // closed above, or the caller's
		return repeatable(req) && again(resp, err)
	})
	if ended == nil {
		return resp, err
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
	return nil, ended
}

// repeatable reports whether a request may be sent twice.
func repeatable(req *http.Request) bool {
	return (req.Method == http.MethodGet || req.Method == http.MethodHead) && req.Body == nil
}

// again reports whether a request of this outcome is worth another attempt.
func again(resp *http.Response, err error) bool {
	if err != nil {
		return lost(err)
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return resp.Header.Get("Retry-After") == ""
	default:
		return false
	}
}

// After reads a Retry-After header: seconds or a date (RFC 9110 §10.2.3). It is 0 when there is none, or none that can be read, and at
// most [MaxAfter].
func After(header string) time.Duration {
	if header == "" {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(header) + "s")
	if err != nil {
		when, err := http.ParseTime(header)
		if err != nil {
			return 0
		}
		d = time.Until(when)
	}
	return min(max(d, 0), MaxAfter)
}

// lost tells lost connections, over which a request may be tried again, from refusals such as a bad certificate.
func lost(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return dns.IsTemporary || dns.IsTimeout
	case errors.As(err, &op):
		switch op.Op {
		case "remote error", "local error": // alerts of TLS (RFC 8446 §6)
			return false
		case "proxyconnect":
			return lost(op.Err)
		default:
			return true
		}
	default:
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED)
	}
}

// wait ends early with the cause of ctx's end.
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
