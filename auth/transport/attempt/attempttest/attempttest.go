// Package attempttest is a test for code that sends requests. It checks, with real connections,
// that the code explains failed requests and repeats requests as package attempt requires. All
// packages that send requests run this test, so that they behave in the same way.
package attempttest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// Sender is the code under test, which sends requests.
type Sender struct {
	// Side says how the sender's error texts name the server and the settings of the connection.
	Side attempt.Side
	// Attempts is the sender's maximum number of attempts for one request.
	Attempts int
	// Send sends one HTTPS request through base, and returns the error. The request may name any
	// host: base dials an address of the test instead.
	Send func(t *testing.T, base *http.Transport) error
}

// Run checks the sender with every cause of failure that a real connection can have.
func Run(t *testing.T, s Sender) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			base := transport.Default()
			base.Proxy = nil
			base.TLSHandshakeTimeout, base.ResponseHeaderTimeout = patience, patience
			c.spoil(t, base)
			var dialled atomic.Int32
			dial := base.DialContext
			base.DialContext = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
				dialled.Add(1)
				return dial(ctx, network, address)
			}
			pool, err := transport.NewPool(transport.Options{Base: base, Dial: dial, CheckTarget: endpoint.Guard{}.CheckTarget})
			must.Succeed(t, err)
			t.Cleanup(pool.Close)
			c.check(t, s, s.Send(t, pool.Via(nil)), int(dialled.Load()))
		})
	}
}

// check checks the sender's error text, and the number of connections that it dialled.
func (c testCase) check(t *testing.T, s Sender, err error, dialled int) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	want := 1
	if c.again {
		want = s.Attempts
	}
	if dialled != want {
		t.Errorf("%d attempts, want %d", dialled, want)
	}
	fix := c.fix
	if c.fixByField != "" && s.Side.Certificates != "" {
		fix = c.fixByField
	}
	for _, part := range []string{c.says, strings.ReplaceAll(fix, "NAME", s.Side.Name)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
	for _, hidden := range []string{"127.0.0.1", "[::1]", "proxy.internal", proxyPassword, strangersWords} {
		if strings.Contains(fmt.Sprintf("%v", err), hidden) {
			t.Errorf("%v\nsays %q", err, hidden)
		}
	}
}
