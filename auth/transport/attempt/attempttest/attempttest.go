// Package attempttest checks, with real connections, that whatever sends requests explains failed
// ones and repeats them as package attempt says. Every part that sends requests runs it, so that
// the parts cannot drift apart.
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
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// Sender sends requests.
type Sender struct {
	// Side is how the sender's errors call the other side.
	Side attempt.Side
	// Attempts is how often the sender sends one request at most.
	Attempts int
	// Send sends one request by https to any host, and returns why there was no answer. The
	// transport leads every host to the same place.
	Send func(t *testing.T, base *http.Transport) error
}

// Run checks the sender against every cause that can be made with a real connection.
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
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			c.check(t, s, s.Send(t, pool.Via(nil)), int(dialled.Load()))
		})
	}
}

// check checks what the sender says and how often it has dialled.
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
