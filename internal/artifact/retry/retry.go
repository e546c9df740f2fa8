// Package retry says whether, when and how a request for an artifact is repeated, to whichever service it goes.
package retry

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// MaxAfter bounds what is believed of a service's Retry-After.
const MaxAfter = time.Hour

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

// Lost tells lost connections, over which a request may be tried again, from refusals such as a bad certificate.
func Lost(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return dns.IsTemporary || dns.IsTimeout
	case errors.As(err, &op):
		return true
	default:
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED)
	}
}

// Pause waits. It ends early with the cause of ctx's end.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
