package cloudtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Start listens on a free loopback port. It serves the proxy in the background until ctx is done or
// the cloud is closed. When Start returns, [Cloud.ProxyURL] is known and connections are accepted.
func (c *Cloud) Start(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("cloudtest: listen: %w", err)
	}
	server, err := c.proxyServer(ctx, ln)
	if err != nil {
		_ = ln.Close()
		return err
	}
	go func() { _ = c.serveProxy(ctx, server, ln) }()
	return nil
}

// Serve serves the proxy and the admin API on ln. It returns nil when ctx is done or the cloud is
// closed. It refuses a listener that is not on loopback, because everybody who reaches the proxy
// can change the cloud.
func (c *Cloud) Serve(ctx context.Context, ln net.Listener) error {
	server, err := c.proxyServer(ctx, ln)
	if err != nil {
		_ = ln.Close()
		return err
	}
	return c.serveProxy(ctx, server, ln)
}

func (c *Cloud) proxyServer(ctx context.Context, ln net.Listener) (*http.Server, error) {
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("cloudtest: listen on a loopback address such as 127.0.0.1:0, not on %s", ln.Addr())
	}
	admin := c.adminHandler(addr.String())
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodConnect:
				c.serveConnect(w, r)
			// The client sent the request to the IP address of Azure's metadata server, or to the
			// proxy's address if the client's environment has AZURE_POD_IDENTITY_AUTHORITY_HOST.
			case c.azure.IsMetadata(r):
				c.server.Serve(w, r, c.azure.Metadata)
			case r.URL.Host != "":
				c.refusePlain(w, r)
			// The client sent the request to the proxy, because the client's environment has
			// GCE_METADATA_HOST.
			case c.gcp.IsMetadata(r):
				c.server.Serve(w, r, c.gcp.Metadata)
			default:
				admin.ServeHTTP(w, r)
			}
		}),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proxies == nil {
		return nil, ErrClosed
	}
	c.proxies[server] = struct{}{}
	if c.address == "" {
		c.address = addr.String()
	}
	return server, nil
}

func (c *Cloud) serveProxy(ctx context.Context, server *http.Server, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(ln)
	c.mu.Lock()
	delete(c.proxies, server)
	c.mu.Unlock()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("cloudtest: serve: %w", err)
}

// ProxyURL returns the proxy's URL, "http://127.0.0.1:<port>". It is empty before [Cloud.Start] or
// [Cloud.Serve].
func (c *Cloud) ProxyURL() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.address == "" {
		return ""
	}
	return "http://" + c.address
}

// admit decides whether a client may connect to a host. Connections use TLS on port 443, unless
// plain is set. It returns the host and, for a refusal, the call to record.
func (c *Cloud) admit(hostport string, plain bool) (host string, refused *journal.Call) {
	host = wire.Host(hostport)
	call := journal.Call{Time: time.Now(), Host: host, Service: journal.ServiceProxy, Operation: "CONNECT"}
	switch {
	case !plain && c.service(host) == nil:
		call.Code, call.Reason, call.Status = "UnknownHost", refusal(host), http.StatusForbidden
	case !plain && !strings.HasSuffix(hostport, ":443"):
		call.Code, call.Reason, call.Status = "UnknownPort", "only port 443 of "+host+" is part of this local cloud", http.StatusForbidden
	default:
		id, refuse := c.faults.TakeConnect(host)
		if !refuse {
			return host, nil
		}
		call.Code, call.Reason, call.Status, call.Fault = "Refused", "an injected fault refuses connections to "+
			host, http.StatusBadGateway, id
	}
	return host, &call
}

// serveConnect gives a client a TLS connection to a host of the cloud.
func (c *Cloud) serveConnect(w http.ResponseWriter, r *http.Request) {
	host, refused := c.admit(r.Host, false)
	if refused != nil {
		c.journal.Record(*refused)
		c.refuseConnect(w, refused)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "cannot tunnel", http.StatusInternalServerError)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	ctx := context.WithoutCancel(r.Context()) // the tunnel must not end when this request ends
	go c.terminate(ctx, &bufferedConn{Conn: conn, r: buffered.Reader}, host)
}

// refuseConnect refuses a CONNECT with the reason in the status line. Go's client and most other
// clients show only the status line.
func (c *Cloud) refuseConnect(w http.ResponseWriter, call *journal.Call) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, call.Reason, call.Status)
		return
	}
	defer func() { _ = conn.Close() }()
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, call.Reason)
	_, _ = fmt.Fprintf(conn,
		"HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		call.Status, line, len(line)+1, line)
}

func (c *Cloud) refusePlain(w http.ResponseWriter, r *http.Request) {
	host := wire.Host(r.URL.Host)
	c.refuse(w, journal.Call{
		Host: host, Operation: "PLAIN", Code: "PlainHTTP", Status: http.StatusForbidden,
		Reason: "plain http to " + host + " is not part of this local cloud: use https",
	})
}

// terminate makes the TLS handshake as the given host and hands the connection to the inner server.
func (c *Cloud) terminate(ctx context.Context, conn net.Conn, host string) {
	server := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}, // HTTP/1 only: a dropped connection drops one call
		// Send header and body of an API's answer in one TLS record. Otherwise the client can lose
		// the body of the answer. AWS's SDK for Go closes the request's body when the answer's
		// header arrives. If the client's net/http is still reading the request's body, net/http
		// closes the connection. If the answer's body arrives later, it is lost. A local server
		// answers fast enough for this to happen.
		DynamicRecordSizingDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if wire.Host(hello.ServerName) != host {
				return nil, fmt.Errorf("the client asked the proxy for %q and the server for %q", host, hello.ServerName)
			}
			return c.authority.leaf(host)
		},
	})
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := server.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		// Do not record a client that hung up.
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			c.journal.Record(journal.Call{
				Time: time.Now(), Host: host, Service: journal.ServiceProxy, Operation: "TLS", Code: "HandshakeFailed",
				Reason: err.Error() + " (does the client trust the cloud's CA?)",
			})
		}
		return
	}
	c.conns.put(ctx, server)
}

// bufferedConn first reads the bytes that the HTTP server has already buffered.
type bufferedConn struct {
	net.Conn

	r *bufio.Reader
}

// Read reads from the buffer, which reads from the connection.
func (b *bufferedConn) Read(p []byte) (int, error) { return b.r.Read(p) }
