package retry_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/retry"
)

func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for header, want := range map[string]time.Duration{
			"":                       0,
			"120":                    2 * time.Minute,
			" 3 ":                    3 * time.Second,
			"-5":                     0,
			"1e9":                    0,
			"999999":                 retry.MaxAfter,
			"soon":                   0,
			"9999999999999999999999": 0,
			time.Now().Add(time.Minute).UTC().Format(http.TimeFormat):      time.Minute,
			time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat):     0,
			time.Now().Add(1000 * time.Hour).UTC().Format(http.TimeFormat): retry.MaxAfter,
		} {
			if got := retry.After(header); got != want {
				t.Errorf("%q: %s, want %s", header, got, want)
			}
		}
	})
}

func TestLost(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		lost bool
	}{
		"reset":           {fmt.Errorf("read: %w", syscall.ECONNRESET), true},
		"refused":         {syscall.ECONNREFUSED, true},
		"broke off":       {io.ErrUnexpectedEOF, true},
		"ended":           {io.EOF, true},
		"dial":            {&net.OpError{Op: "dial", Err: errors.New("x")}, true},
		"no such host":    {&net.DNSError{IsNotFound: true}, false},
		"resolver is off": {&net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}}, true},
		"certificate":     {x509.UnknownAuthorityError{}, false},
		"cancelled":       {context.Canceled, false},
		"none":            {nil, false},
	} {
		if got := retry.Lost(tc.err); got != tc.lost {
			t.Errorf("%s: %v, want %v", name, got, tc.lost)
		}
	}
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := retry.Pause(t.Context(), time.Second); err != nil || time.Since(begun) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		cause := errors.New("the controller ends")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := retry.Pause(ctx, time.Hour); !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
	})
}
