package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/local"
)

// direct connects to this machine without a proxy, even if the environment sets one. The timeout is
// long, because a busy machine needs half a minute for the largest artifact.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// freeAddress reserves a loopback address for a program until the test ends.
func freeAddress(t *testing.T) string {
	t.Helper()
	r, err := local.Reserve(1)
	must(t, "find a free port", err)
	t.Cleanup(r.Release)
	return r.Addresses[0]
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, "listen", err)
	return l
}

// forward forwards connections to another address. It calls each() for every connection.
func forward(t *testing.T, to string, each func()) (address string) {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("accept: %v", err)
				}
				return
			}
			each()
			running.Go(func() { pipe(ctx, in, to) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		cancel()
		running.Wait()
	})
	return l.Addr().String()
}

// pipe forwards a connection to an address. It copies data in both directions until one of the two
// connections or ctx ends.
func pipe(ctx context.Context, in net.Conn, to string) {
	defer in.Close()
	out, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
	both.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
	both.Wait()
}
