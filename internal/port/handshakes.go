package port

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"sync"
)

// handshakes is the listener of a port with TLS. Its Accept returns only connections whose TLS
// handshake is complete. If the port verifies clients, such a connection is verified.
//
// Package net/http could make the handshakes itself, but does not report when a handshake is
// complete. The connection would then stay unverified until its first request. Until then, a new
// connection of a client without a certificate could replace the connection.
type handshakes struct {
	*listener

	config *tls.Config
	log    *log.Logger

	begin    func() // starts accept; only the first call has an effect
	complete chan accepted
	ended    <-chan struct{} // closed when the listener is closed
	end      func()          // closes ended, and ends all handshakes
}

// accepted is a result of Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// newHandshakes returns the listener of a port with TLS. The end of ctx does not affect the
// listener: handshakes are possible until the listener is closed.
func newHandshakes(ctx context.Context, l *listener, config *tls.Config, log *log.Logger) *handshakes {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	h := &handshakes{listener: l, config: config, log: log, complete: make(chan accepted), ended: life.Done(), end: end}
	h.begin = sync.OnceFunc(func() { go h.accept(life) })
	return h
}

// Accept implements [net.Listener].
func (h *handshakes) Accept() (net.Conn, error) {
	h.begin()
	select {
	case next := <-h.complete:
		return next.conn, next.err
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *handshakes) Close() error {
	h.end()
	return h.listener.Close()
}

// accept accepts connections and starts a handshake for each connection, until the listener is
// closed. If the listener returns another error, Accept returns this error to net/http. For
// example, the program may have too many open files. In this case, net/http waits and calls Accept
// again.
func (h *handshakes) accept(ctx context.Context) {
	for {
		c, err := h.listener.Accept()
		switch {
		case err == nil:
			go h.handshake(ctx, c)
		case errors.Is(err, net.ErrClosed):
			h.end()
			return
		default:
			select {
			case h.complete <- accepted{err: err}:
			case <-h.ended:
				return
			}
		}
	}
}

// handshake makes the TLS handshake of the new connection c, and passes the connection to Accept.
// If the handshake fails, handshake closes c.
func (h *handshakes) handshake(ctx context.Context, c net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, HeaderTimeout)
	defer cancel()
	over := tls.Server(c, h.config)
	if err := over.HandshakeContext(ctx); err != nil {
		h.log.Printf("TLS handshake error from %s: %v", c.RemoteAddr(), err)
		_ = c.Close()
		return
	}
	if h.verifies {
		h.move(c.(*conn), &h.verified, false)
	}
	select {
	case h.complete <- accepted{conn: over}:
	case <-h.ended:
		_ = c.Close()
	}
}
