package retry_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for until, want := range map[int]int{1: 1, 2: 2, 3: 3, 100: retry.Attempts} {
			asked, begun := 0, time.Now()
			if err := retry.Do(t.Context(), func() bool { asked++; return asked < until }); err != nil || asked != want {
				t.Errorf("%d times, %v, want %d", asked, err, want)
			}
			if took := time.Since(begun); took > 500*time.Millisecond || want == 3 && took < 400*time.Millisecond {
				t.Errorf("%d attempts took %s", asked, took)
			}
		}
		cause := errors.New("the controller ends")
		ctx, cancel := context.WithCancelCause(t.Context())
		asked := 0
		time.AfterFunc(retry.FirstPause/2, func() { cancel(cause) })
		if err := retry.Do(ctx, func() bool { asked++; return true }); !errors.Is(err, cause) || asked != 1 {
			t.Errorf("%v after %d", err, asked)
		}
	})
}

// body counts what is closed.
type body struct {
	io.Reader

	closed *int
}

func (b body) Close() error { *b.closed++; return nil }

type service func(*http.Request) (*http.Response, error)

func (s service) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func get(t *testing.T, next http.RoundTripper) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://service.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return retry.RoundTrip(next, req)
}

func TestLostConnectionsAreTriedAgain(t *testing.T) {
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
		"alert":           {&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, false},
		"no proxy":        {&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, true},
		"proxy's name":    {&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}}, false},
		"proxy's address": {&net.OpError{Op: "proxyconnect", Err: errors.New("refused by the guard")}, false},
		"cancelled":       {context.Canceled, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			_, err := get(t, service(func(*http.Request) (*http.Response, error) { requests++; return nil, tc.err }))
			if !errors.Is(err, tc.err) || tc.lost != (requests == retry.Attempts) {
				t.Errorf("%s: %v after %d", name, err, requests)
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	header := func(pairs ...string) http.Header { return http.Header{pairs[0]: pairs[1:]} }
	for name, tc := range map[string]struct {
		method   string
		status   int
		header   http.Header
		err      error
		requests int
	}{
		"good":             {http.MethodGet, 200, nil, nil, 1},
		"overload":         {http.MethodGet, 503, nil, nil, 3},
		"overload of HEAD": {http.MethodHead, 503, nil, nil, 3},
		"with a pause":     {http.MethodGet, 503, header("Retry-After", "7"), nil, 1},
		"slow request":     {http.MethodGet, 408, nil, nil, 3},
		"fault":            {http.MethodGet, 500, nil, nil, 3},
		"quota":            {http.MethodGet, 429, nil, nil, 1},
		"HTTP 501":         {http.MethodGet, 501, nil, nil, 1},
		"refusal":          {http.MethodGet, 403, nil, nil, 1},
		"writing":          {http.MethodPost, 503, nil, nil, 1},
		"lost":             {http.MethodGet, 0, nil, io.ErrUnexpectedEOF, 3},
		"certificate":      {http.MethodGet, 0, nil, x509.UnknownAuthorityError{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests, closed := 0, 0
				next := service(func(*http.Request) (*http.Response, error) {
					requests++
					if tc.err != nil {
						return nil, tc.err
					}
					return &http.Response{StatusCode: tc.status, Header: tc.header, Body: body{strings.NewReader("x"), &closed}}, nil
				})
				req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://service.example/", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := retry.RoundTrip(next, req)
				if !errors.Is(err, tc.err) || requests != tc.requests {
					t.Errorf("%v after %d requests, want %d", err, requests, tc.requests)
				}
				if err == nil {
					if resp.StatusCode != tc.status || closed != requests-1 {
						t.Errorf("status %d, %d of %d closed", resp.StatusCode, closed, requests)
					}
					_ = resp.Body.Close()
				}
			})
		})
	}
}
