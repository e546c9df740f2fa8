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
// Package net/http could make the handshakes itself, but does not report when a handshake is
// complete. The connection would then stay unverified until its first request. Until then, a new
// connection of a client without a certificate could replace the connection.
type handshakes struct {
	*listener

	config *tls.Config
	log    *log.Logger

	begin    sync.Once
	complete chan net.Conn
	failed   error         // the error that ended the listener; set before ended is closed
	ended    chan struct{} // closed when the listener accepts no more connections
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

// accept starts a handshake for each new connection, until the listener fails or is closed.
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

// handshake makes the TLS handshake of the new connection c, and passes the connection to Accept.
// If the handshake fails, handshake closes c.
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
