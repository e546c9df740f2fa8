// Package port opens the TCP ports of Lanyard's programs. Every port limits the number of its
// connections, the time of a request, the size of a header, and the memory of a connection. So
// clients without credentials cannot exhaust a program's memory, and cannot block other clients.
//
// A test in internal/architecture checks that no other package opens a port.
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
	// MaxConnections is the largest number of a port's open connections. Connections that count for
	// MaxVerified do not count here. If the port is full, a new connection replaces another
	// connection. The port then closes a connection of the client address with most connections.
	// From this address, the port usually closes the connection that has been idle longest.
	MaxConnections = 500
	// MaxVerified is the largest number of a port's connections whose client has shown its
	// certificate. These connections do not count for MaxConnections. Connections of clients
	// without a certificate never replace these connections.
	MaxVerified = 1000
	// HeaderTimeout is the longest time of a TLS handshake. It is also the longest time in which a
	// client may send a request's header.
	HeaderTimeout = 5 * time.Second
	// IdleTimeout is the longest pause between two requests of a connection.
	IdleTimeout = 10 * time.Second
	// VerifiedIdleTimeout replaces IdleTimeout if the clients of the port must show a certificate.
	// Such a client is the API server, whose connection should stay open between two requests. The
	// value is the same as in [http.DefaultTransport].
	VerifiedIdleTimeout = 90 * time.Second
	// maxStreams is the largest number of simultaneous requests of an HTTP/2 connection.
	maxStreams = 100
	// requestBuffer is how many bytes of a request's body an HTTP/2 connection can store. The
	// connection stores these bytes until the handler reads them. HTTP/2 lets a client send 64 KiB
	// before the client knows a smaller limit. A connection can store requestBuffer bytes for each
	// of maxStreams requests. With less memory, unread bodies would block the connection's other
	// requests.
	requestBuffer = 64 << 10
	// shutdownTimeout is how long the server waits for unfinished requests when the program ends.
	shutdownTimeout = 10 * time.Second
)

// Config describes a port: its address, its handler, its log and its limits.
type Config struct {
	// Name is the purpose of the port, such as "metrics". Log messages contain Name. Required.
	Name string
	// Flag is the flag that sets Address, such as "--metrics-address". Errors contain Flag.
	// Required.
	Flag string
	// Address is where the port listens, such as ":8080". Required.
	Address string
	// Handler answers the requests. Required.
	Handler http.Handler
	// Log gets the server's messages, with the level debug. Only a handler's panic has the level
	// error. Required.
	Log *slog.Logger

	// TLS is the configuration of TLS. Default: nil, so the port serves HTTP without TLS.
	TLS *tls.Config
	// Verified says that TLS requires a valid certificate from each client. MaxVerified then limits
	// the number of connections with a complete handshake.
	Verified bool
	// MaxHeaderBytes is the largest size of a request's header, in bytes. Default: 16 KiB.
	MaxHeaderBytes int
	// WriteTimeout is the longest time from the end of a request's header to the end of the answer.
	// Default: 10 s.
	WriteTimeout time.Duration
}

// Open listens on the port and returns the port's server. The program's manager calls the server's
// method Start. The server then serves requests until the context of Start ends. The argument ctx
// affects only the call of Open.
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
	// During a flood, each connection must cost little. Keep-alive packets would cost four system
	// calls for each. The timeouts below need no such packets.
	listening := net.ListenConfig{KeepAlive: -1, Control: setBuffers}
	tcp, err := listening.Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Flag, err)
	}
	bounded := &listener{Listener: tcp, verifies: c.Verified, maxFirstBytes: c.MaxHeaderBytes + firstBytes}
	bounded.unverified.max, bounded.verified.max = MaxConnections, MaxVerified
	server := &http.Server{
		Handler: c.Handler, TLSConfig: c.TLS, ConnState: bounded.connState,
		ReadHeaderTimeout: HeaderTimeout, // the type handshakes has the same limit for a TLS handshake
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      c.WriteTimeout,
		IdleTimeout:       idle,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: maxStreams * requestBuffer,
			MaxReceiveBufferPerStream:     requestBuffer,
			MaxReadFrameSize:              16 << 10,
			WriteByteTimeout:              c.WriteTimeout, // HTTP/2 does not use WriteTimeout for a connection
		},
		ErrorLog: log.New(errorLog{c.Log.With("port", c.Name)}, "", 0),
		// By default, net/http answers the request "OPTIONS *". With this setting, Handler answers.
		DisableGeneralOptionsHandler: true,
	}
	var accepting net.Listener = bounded
	if c.TLS != nil {
		accepting = newHandshakes(ctx, bounded, c.TLS, server.ErrorLog)
	}
	shutdown := shutdownTimeout
	return &manager.Server{Name: c.Name, Server: server, Listener: accepting, ShutdownTimeout: &shutdown}, nil
}

// errorLog writes the messages of an [http.Server] to the program's log. Clients cause nearly all
// of these messages, for example by a failed handshake. So the level of these messages is debug. A
// panic of a handler has the level error.
type errorLog struct{ log *slog.Logger }

// Write implements [io.Writer]. The argument p is one message.
func (l errorLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("panic serving")) {
		l.log.Error(string(p))
	} else {
		l.log.Debug(string(p))
	}
	return len(p), nil
}
