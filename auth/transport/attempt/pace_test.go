package attempt_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// pipes is a listener whose connections are in memory, so that a test can fake the time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// TestPace checks that reading an answer fails if the server sends the answer too slowly. Reading
// must not fail if only the reader is slow. Each server sends its answer in parts, with a pause
// after each part.
func TestPace(t *testing.T) {
	const size = 64 << 10
	for name, test := range map[string]struct {
		part   int
		pause  time.Duration
		reader time.Duration // pause of the reader after each read
		total  int
		longer time.Duration // the transfer takes at least this time
		within time.Duration // the transfer takes at most this time
		slow   bool
	}{
		"a byte each two seconds":   {1, 2 * time.Second, 0, size, attempt.Grace, attempt.Grace + 2*time.Second, true},
		"half of the rate":          {attempt.MinRate / 2, time.Second, 0, size, attempt.Grace, 3 * attempt.Grace, true},
		"a little over the rate":    {attempt.MinRate + 10, time.Second, 0, size, time.Minute, 65 * time.Second, false},
		"one part and then nothing": {size / 2, 2 * time.Hour, 0, size, attempt.Grace - time.Second, attempt.Grace + time.Second, true},
		"nothing":                   {0, 2 * time.Hour, 0, size, attempt.Grace - time.Second, attempt.Grace + time.Second, true},
		"short and slow":            {1, 5 * time.Second, 0, 5, 20 * time.Second, 26 * time.Second, false},
		"a slow reader":             {1 << 10, 0, 10 * time.Minute, 4 << 10, 40 * time.Minute, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := make(pipes, 1)
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusOK)
					must.Succeed(t, http.NewResponseController(w).Flush())
					for left := test.total; left > 0 && r.Context().Err() == nil; left -= test.part {
						_, _ = w.Write(make([]byte, min(test.part, left)))
						_ = http.NewResponseController(w).Flush()
						select {
						case <-time.After(test.pause):
						case <-r.Context().Done():
						}
					}
				})}
				go func() { _ = server.Serve(listener) }()
				transport := &http.Transport{DialContext: listener.dial}
				defer func() { transport.CloseIdleConnections(); close(listener); _ = server.Close() }()

				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://registry.example/", nil)
				must.Succeed(t, err)
				response, err := attempt.RoundTrip(transport, request)
				must.Succeed(t, err)
				defer response.Body.Close()
				began, n, buffer := time.Now(), 0, make([]byte, 1<<10)
				for err == nil {
					var read int
					read, err = response.Body.Read(buffer)
					n += read
					time.Sleep(test.reader)
				}
				took := time.Since(began)
				if slow := attempt.Explain(err).Cause == attempt.TooSlow; slow != test.slow || !slow && (!errors.Is(err, io.EOF) || n != test.total) {
					t.Errorf("%d bytes, then %v", n, err)
				}
				if took < test.longer || took > test.within {
					t.Errorf("the transfer took %s, want %s to %s", took, test.longer, test.within)
				}
				if test.slow && attempt.Explain(err).Again() {
					t.Error("the request is sent again")
				}
			})
		})
	}
}

// TestPaceAndTheCallersDeadline ends the caller's context while the body arrives. The error is the
// context's error, and its cause is not TooSlow.
func TestPaceAndTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, writer := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		context.AfterFunc(ctx, func() { _ = writer.CloseWithError(ctx.Err()) })
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://registry.example/", nil)
		must.Succeed(t, err)
		response, err := attempt.RoundTrip(answers{body}, request)
		must.Succeed(t, err)
		if _, err := io.ReadAll(response.Body); !errors.Is(err, context.DeadlineExceeded) || attempt.Explain(err).Cause == attempt.TooSlow {
			t.Errorf("%v", err)
		}
		must.Succeed(t, response.Body.Close())
	})
}

// answers is a transport that answers each request with the given body.
type answers struct{ body io.ReadCloser }

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: a.body}, nil
}
