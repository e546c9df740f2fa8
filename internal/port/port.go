// Package port opens the TCP ports of Lanyard's programs. Every port bounds the number of its
// connections, the time and size of requests, and the memory of a connection. So clients without
// credentials cannot use up a program's memory, and cannot block other clients.
//
// No other package opens a port; a test in internal/architecture checks this.
package port

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// MaxConnections is the largest number of open connections of a port. When the port is full, a
	// new connection replaces the connection that has been idle longest.
	MaxConnections = 500
	// MaxVerified is the largest number of connections whose client has shown its certificate. They
	// do not count for MaxConnections, and other connections never replace them.
	MaxVerified = 1000
	// HeaderTimeout is the longest time of a TLS handshake, and of a request's header.
	HeaderTimeout = 5 * time.Second
	// IdleTimeout is the longest pause between two requests of a connection.
	IdleTimeout = 10 * time.Second
	// VerifiedIdleTimeout is IdleTimeout for clients that have shown their certificate. An API
	// server should not lose its connection between two requests, so it is 90 s, as for
	// [http.DefaultTransport].
	VerifiedIdleTimeout = 90 * time.Second
	// maxStreams is the largest number of requests of an HTTP/2 connection that are under way.
	maxStreams = 100
	// requestBuffer is the number of bytes of a body that an HTTP/2 connection stores until a
	// handler reads them. Clients may send 64 KiB before they know the bound. A handler may let
	// requests wait before the handler reads their bodies. So a connection stores requestBuffer
	// bytes for each of maxStreams requests. Otherwise, bodies that wait would block the
	// connection's other requests.
	requestBuffer = 64 << 10
	// shutdownTimeout is how long requests may take to end when the program ends.
	shutdownTimeout = 10 * time.Second
)

// Config says what a port serves, and what differs from the usual bounds.
type Config struct {
	// Name is the purpose of the port, such as "metrics", for the log. Required.
	Name string
	// Flag is the flag that sets Address, such as "--metrics-address", for errors. Required.
	Flag string
	// Address is where the port listens, such as ":8080". Required.
	Address string
	// Handler answers the requests. Required.
	Handler http.Handler
	// Log gets the server's errors. Failed handshakes have the level debug. Required.
	Log *slog.Logger

	// TLS is the configuration of TLS. Default: none, so that the port speaks plain HTTP.
	TLS *tls.Config
	// Verified says that TLS completes a handshake only if the client has shown a valid
	// certificate. MaxVerified bounds the number of connections with a complete handshake.
	Verified bool
	// MaxHeaderBytes is the largest size of a request's header, in bytes. Default: 16 KiB.
	MaxHeaderBytes int
	// WriteTimeout is the longest time from a request's header to the end of the answer. Default:
	// 10 s.
	WriteTimeout time.Duration
}

// Open listens on the port and returns the port's server. The program's manager calls the server's
// method Start. The server then serves requests until the context of Start ends. The context of
// Open counts only until Open returns.
func Open(ctx context.Context, c Config) (*manager.Server, error) {
	if c.MaxHeaderBytes == 0 {
		c.MaxHeaderBytes = 16 << 10
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 10 * time.Second
	}
	idle := IdleTimeout
	if c.Verified {
		idle = VerifiedIdleTimeout
	}
	var listening net.ListenConfig
	tcp, err := listening.Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Flag, err)
	}
	bounded := &listener{Listener: tcp, verifies: c.Verified, maxFirstBytes: c.MaxHeaderBytes + firstBytes}
	bounded.unverified.max, bounded.verified.max = MaxConnections, MaxVerified
	server := &http.Server{
		Handler: c.Handler, TLSConfig: c.TLS, ConnState: bounded.connState,
		ReadHeaderTimeout: HeaderTimeout, // also the time of the TLS handshake
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      c.WriteTimeout,
		IdleTimeout:       idle,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: maxStreams * requestBuffer,
			MaxReceiveBufferPerStream:     requestBuffer,
			MaxReadFrameSize:              16 << 10,
		},
		ErrorLog: log.New(errorLog{c.Log.With("port", c.Name)}, "", 0),
		// Without this setting, net/http would answer "OPTIONS *" itself.
		DisableGeneralOptionsHandler: true,
	}
	var accepting net.Listener = bounded
	if c.TLS != nil {
		accepting = newHandshakes(bounded, c.TLS, server.ErrorLog)
	}
	shutdown := shutdownTimeout
	return &manager.Server{Name: c.Name, Server: server, Listener: accepting, ShutdownTimeout: &shutdown}, nil
}

// errorLog is the writer of an [http.Server]'s log. Clients cause nearly all of these messages, for
// example with a failed handshake, so the level is debug. A panic of a handler has the level error.
type errorLog struct{ log *slog.Logger }

// Write implements [io.Writer]: p is one message.
func (l errorLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("panic serving")) {
		l.log.Error(string(p))
	} else {
		l.log.Debug(string(p))
	}
	return len(p), nil
}
