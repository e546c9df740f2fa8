package attempttest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// certificateName is a name in the certificate of httptest's servers.
const certificateName = "example.com"

// proxyPassword is the password in a proxy's URL.
const proxyPassword = "a-proxys-password"

// strangersWords is the text in a proxy's answer. No error may repeat it.
const strangersWords = "kubernetes.default says no"

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// redirect returns a function that dials the given address instead of the requested one.
func redirect(dial dialFunc, address string) dialFunc {
	return func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, address) }
}

func dialTo(address string) dialFunc { return redirect((&net.Dialer{}).DialContext, address) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// accept starts a server that handles each connection with the given function, and then closes it.
// It returns the server's address.
func accept(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				do(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// hang reads until the client closes the connection.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// plain answers a TLS handshake as a web server without TLS does: with an HTTP error in plain text.
func plain(conn net.Conn) {
	hangUp(conn)
	_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
}

// hangUp reads the client's message before the server closes the connection. Closing with unread
// data would reset the connection.
func hangUp(conn net.Conn) { _, _ = conn.Read(make([]byte, 64<<10)) }

func reset(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }

// nonsense sends a TLS message that is not allowed at the beginning (ServerHelloDone, RFC 5246
// §7.4.5).
func nonsense(conn net.Conn) {
	hangUp(conn)
	_, _ = conn.Write([]byte{22, 3, 3, 0, 4, 14, 0, 0, 0})
	hang(conn)
}

// serve starts a server with TLS. It makes base connect to this server and trust its certificate.
func serve(t *testing.T, base *http.Transport, handler http.HandlerFunc, config *tls.Config) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	base.DialContext = dialTo(server.Listener.Addr().String())
	base.TLSClientConfig.RootCAs = x509.NewCertPool()
	base.TLSClientConfig.RootCAs.AddCert(server.Certificate())
	base.TLSClientConfig.ServerName = certificateName
}

// hangingAnswer waits until the client closes the connection. It must read the body first,
// otherwise net/http does not notice that the connection was closed.
func hangingAnswer(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func noAnswer(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func proxy(scheme string) func(*http.Request) (*url.URL, error) {
	return http.ProxyURL(&url.URL{Scheme: scheme, Host: "proxy.internal:3128", User: url.UserPassword("me", proxyPassword)})
}

func refuseConnect(conn net.Conn, status int) {
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", status, strangersWords)
}

// Response codes of DNS. Source: RFC 1035 §4.1.1.
const (
	rcodeServerFailure = 2
	rcodeNoSuchName    = 3
	silent             = -1 // the resolver does not answer
)

// resolving returns a function that starts a DNS server, and makes a transport resolve names there.
// The server answers every question with this response code. If rcode is silent, it never answers.
func resolving(rcode int) func(*testing.T, *http.Transport) {
	return func(t *testing.T, base *http.Transport) {
		t.Helper()
		server, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
		must.Succeed(t, err)
		t.Cleanup(func() { _ = server.Close() })
		timeout := patience
		if rcode == silent {
			timeout = brief
		} else {
			go respond(server, byte(rcode)) //nolint:gosec // a response code has four bits
		}
		resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
		}}
		dialer := net.Dialer{Timeout: timeout, Resolver: resolver}
		base.DialContext = redirect(dialer.DialContext, "registry.example.com.:443")
	}
}

// respond sends each question back as a response with this code and without an answer.
func respond(server net.PacketConn, rcode byte) {
	message := make([]byte, 1500)
	for {
		n, from, err := server.ReadFrom(message)
		if err != nil {
			return
		}
		message[2] |= 1 << 7 // QR bit: it is a response
		message[3] = rcode
		_, _ = server.WriteTo(message[:n], from)
	}
}
