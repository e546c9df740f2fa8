package attempt_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt/attempttest"
)

func TestRealConnections(t *testing.T) {
	side := attempt.Side{Name: "the registry", Certificates: "spec.certSecretRef", Insecure: "spec.insecure"}
	attempttest.Run(t, attempttest.Sender{Side: side, Attempts: attempt.Reads, Send: func(t *testing.T, base *http.Transport) error {
		t.Helper()
		_, err := get(t, base)
		if err == nil {
			return nil
		}
		why := attempt.Explain(err)
		return fmt.Errorf("%w; %s", why, why.Fix(side))
	}})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for header, want := range map[string]time.Duration{
			"": 0, "0": 0, "7": 7 * time.Second, "120": 2 * time.Minute, "-5": 0, "1.5": 0, "1e9": 0, "soon": 0, "9999999": attempt.MaxRetryAfter,
			// These numbers would overflow as nanoseconds, or do not fit into an int.
			"9223372036854775807": attempt.MaxRetryAfter, "-9223372036854775807": 0, "99999999999999999999": 0, "18446744074": attempt.MaxRetryAfter,
			time.Now().Add(time.Minute).UTC().Format(http.TimeFormat):      time.Minute,
			time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat):     0,
			time.Now().Add(1000 * time.Hour).UTC().Format(http.TimeFormat): attempt.MaxRetryAfter,
		} {
			if got := attempt.RetryAfter(http.Header{"Retry-After": {header}}); got != want {
				t.Errorf("%q: %s, want %s", header, got, want)
			}
		}
		if got := attempt.RetryAfter(nil); got != 0 {
			t.Errorf("no header: %s", got)
		}
	})
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for until, want := range map[int]int{1: 1, 2: 2, 3: 3, 100: attempt.Reads} {
			asked, begun := 0, time.Now()
			if err := attempt.Do(t.Context(), attempt.Reads, func() bool { asked++; return asked < until }); err != nil || asked != want {
				t.Errorf("%d times, %v, want %d", asked, err, want)
			}
			if took := time.Since(begun); took > 500*time.Millisecond || want == 3 && took < 400*time.Millisecond {
				t.Errorf("%d attempts took %s", asked, took)
			}
		}
		cause := errors.New("the controller ends")
		ctx, cancel := context.WithCancelCause(t.Context())
		asked := 0
		time.AfterFunc(attempt.FirstPause/2, func() { cancel(cause) })
		if err := attempt.Do(ctx, attempt.Reads, func() bool { asked++; return true }); !errors.Is(err, cause) || asked != 1 {
			t.Errorf("%v after %d", err, asked)
		}
	})
}

// body counts how often a body is closed.
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
	must.Succeed(t, err)
	return attempt.RoundTrip(next, req)
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
				must.Succeed(t, err)
				resp, err := attempt.RoundTrip(next, req)
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
