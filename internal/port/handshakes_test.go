package port

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// errFiles is the error of a listener if the program has too many open files.
var errFiles = errors.New("too many open files")

// failing is a listener whose Accept always fails. The error is errFiles until the listener is
// closed. The method Accept also counts its calls.
type failing struct {
	net.Listener

	calls  atomic.Int64
	closed atomic.Bool
}

func (f *failing) Accept() (net.Conn, error) {
	// Without the bound of the calls, an error in the tested code would make the test endless.
	if n := f.calls.Add(1); f.closed.Load() || n > 100 {
		return nil, net.ErrClosed
	}
	return nil, errFiles
}

func (f *failing) Close() error {
	f.closed.Store(true)
	return nil
}

// TestFailedAcceptWaits checks a listener whose Accept fails again and again, after the end of the
// context of newHandshakes. The caller of Accept gets each error. The goroutine of the listener
// waits for the caller, and ends when the listener is closed.
func TestFailedAcceptWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		tcp := &failing{}
		h := newHandshakes(ctx, &listener{Listener: tcp}, nil, nil)
		stop()
		for range 3 {
			if _, err := h.Accept(); !errors.Is(err, errFiles) {
				t.Errorf("Accept: %v; want %v", err, errFiles)
			}
		}
		synctest.Wait()
		if n := tcp.calls.Load(); n > 4 {
			t.Errorf("%d connections were asked for; want 4", n)
		}
		must.Succeed(t, h.Close())
		if _, err := h.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept of a closed listener: %v", err)
		}
	}) // synctest fails the test if the goroutine of the listener has not ended
}
