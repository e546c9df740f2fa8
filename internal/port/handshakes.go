package port

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"sync"
)

// handshakes is the listener of a port with TLS. Its Accept returns only connections whose TLS
// handshake is complete. If the port verifies clients, such a connection is verified.
//
// Package net/http would make the handshakes itself, but says nothing when they are complete. A
// verified connection would then be replaced like that of a stranger, until its first request.
type handshakes struct {
	*listener

	config *tls.Config
	log    *log.Logger

	begin    sync.Once
	complete chan net.Conn
	failed   error         // why the listener accepts no more; set before ended is closed
	ended    chan struct{} // closed when the listener accepts no more
}

func newHandshakes(l *listener, config *tls.Config, log *log.Logger) *handshakes {
	return &handshakes{listener: l, config: config, log: log, complete: make(chan net.Conn), ended: make(chan struct{})}
}

// Accept implements [net.Listener].
func (h *handshakes) Accept() (net.Conn, error) {
	h.begin.Do(func() { go h.accept() })
	select {
	case c := <-h.complete:
		return c, nil
	case <-h.ended:
		return nil, h.failed
	}
}

// accept begins a handshake for each new connection, until the listener is closed.
func (h *handshakes) accept() {
	for {
		c, err := h.listener.Accept()
		if err != nil {
			h.failed = err
			close(h.ended)
			return
		}
		go h.handshake(c)
	}
}

// handshake makes the handshake of a new connection, and passes the connection to Accept.
func (h *handshakes) handshake(c net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), HeaderTimeout)
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
	case h.complete <- over:
	case <-h.ended:
		_ = c.Close()
	}
}
