package port_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/port"
)

// patience is how long a test waits for an event. A busy machine may need most of this time.
const patience = time.Minute

// start opens a port with the configuration c. It returns the port's server and address. The server
// serves until the test ends. The server closes no connection because of a pause. So the test sees
// only connections that the server closes for another reason.
func start(t *testing.T, c port.Config) (server *manager.Server, address string) {
	t.Helper()
	server = listen(t, c)
	server.Server.ReadHeaderTimeout, server.Server.ReadTimeout, server.Server.IdleTimeout = 5*patience, 5*patience, 5*patience
	return server, serve(t, server)
}

// listen opens a port with the configuration c and returns the port's server.
func listen(t *testing.T, c port.Config) *manager.Server {
	t.Helper()
	c.Name, c.Flag, c.Address, c.Log = "test", "--test-address", "127.0.0.1:0", slog.New(slog.DiscardHandler)
	if c.Handler == nil {
		c.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") })
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop() // affects only the call of Open
	server, err := port.Open(ctx, c)
	must.Succeed(t, err)
	return server
}

// serve starts the server and returns its address. The server serves until the test ends.
func serve(t *testing.T, server *manager.Server) (address string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		must.Succeed(t, <-done)
	})
	return server.Listener.Addr().String()
}

// dial opens a connection to an address, and sends a text over the connection.
func dial(t *testing.T, address, text string) net.Conn {
	t.Helper()
	return dialFrom(t, "127.0.0.1", address, text)
}

// dialFrom does what dial does. The client has the given IP address of the loopback network.
func dialFrom(t *testing.T, client, address, text string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	c, err := dialer.DialContext(t.Context(), "tcp", address)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, text)
	must.Succeed(t, err)
	return c
}

// flood opens n connections, and sends the text over each connection.
func flood(t *testing.T, n int, address, text string) []net.Conn {
	t.Helper()
	connections := make([]net.Conn, n)
	for i := range connections {
		connections[i] = dial(t, address, text)
	}
	return connections
}

// open returns how many of the connections the server has not closed.
func open(t *testing.T, connections []net.Conn) int {
	t.Helper()
	n := 0
	for _, c := range connections {
		if !closed(c, time.Millisecond) {
			n++
		}
	}
	return n
}

// closed reports whether the server closes a connection within the given time.
func closed(c net.Conn, within time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := c.Read(make([]byte, 1))
	timeout, ok := errors.AsType[net.Error](err)
	return err != nil && (!ok || !timeout.Timeout())
}

// ask sends a request over a connection and reads the whole answer.
func ask(t *testing.T, c net.Conn) (status int, err error) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// soon waits until the function holds returns true. If this takes longer than patience, the test
// fails with the text what.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %s", what, patience)
		}
	}
}

// TestFlood opens three times as many connections as a port may have. The numbers of open
// connections and of goroutines stay limited, and an honest request is answered.
func TestFlood(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "an unfinished header": "GET / HTTP/1.1\r\nA: " + strings.Repeat("a", 4000)} {
		t.Run(name, func(t *testing.T) {
			_, address := start(t, port.Config{})
			before := runtime.NumGoroutine()
			connections := flood(t, 3*port.MaxConnections, address, text)
			if status, err := ask(t, dial(t, address, "")); status != http.StatusOK || err != nil {
				t.Errorf("an honest request gets %d, %v", status, err)
			}
			soon(t, "goroutines end", func() bool { return runtime.NumGoroutine()-before <= port.MaxConnections+10 })
			soon(t, "connections end", func() bool { return open(t, connections) <= port.MaxConnections })
			soon(t, "the oldest connections end", func() bool { return open(t, connections[:port.MaxConnections]) == 0 })
		})
	}
}

// TestLongestIdleIsReplaced opens one connection more than a port may have. The port closes the
// connection that has been idle longest. A connection that serves a request stays open.
func TestLongestIdleIsReplaced(t *testing.T) {
	end, started := make(chan struct{}), make(chan struct{})
	_, address := start(t, port.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(started)
			<-end
		}
		_, _ = io.WriteString(w, "answer")
	})})
	running := dial(t, address, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
	<-started
	connections := flood(t, port.MaxConnections-1, address, "")
	for _, c := range connections[:2] { // after these requests, connections[2] has been idle longest
		if status, err := ask(t, c); status != http.StatusOK || err != nil {
			t.Fatal(status, err)
		}
	}
	dial(t, address, "")
	soon(t, "the third connection is closed", func() bool { return closed(connections[2], time.Millisecond) })
	if n := open(t, connections); n != len(connections)-1 {
		t.Errorf("%d connections are open, want all but one of %d", n, len(connections))
	}
	close(end)
	if answer, err := http.ReadResponse(bufio.NewReader(running), nil); err != nil || answer.StatusCode != http.StatusOK {
		t.Error("the request under way has no answer:", err)
	}
}

// TestClientsWithFewConnectionsKeepThem opens several connections from two addresses, and then many
// connections from a third address. The port closes connections of the third address only. The
// connections are idle, or all serve a request.
func TestClientsWithFewConnectionsKeepThem(t *testing.T) {
	for name, text := range map[string]string{"idle": "", "active": "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			_, address := start(t, port.Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
			var few []net.Conn
			for range 3 {
				few = append(few, dialFrom(t, "127.0.0.2", address, text), dialFrom(t, "127.0.0.3", address, text))
			}
			many := flood(t, port.MaxConnections+len(few), address, text)
			soon(t, "connections end", func() bool { return open(t, many) <= port.MaxConnections-len(few) })
			if n := open(t, few); n != len(few) {
				t.Errorf("%d connections of the others are open; want %d", n, len(few))
			}
		})
	}
}

// TestActiveOfALargeClientStay opens connections from one address, and each serves a request. Other
// addresses open fewer connections each, without a request. A full port must close only connections
// without a request, although the first address has most connections.
func TestActiveOfALargeClientStay(t *testing.T) {
	const large = port.MaxConnections * 2 / 5
	var started atomic.Int64
	_, address := start(t, port.Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		started.Add(1)
		<-r.Context().Done()
	})})
	var active []net.Conn
	for range large {
		active = append(active, dialFrom(t, "127.0.0.2", address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	}
	soon(t, "all requests have started", func() bool { return started.Load() == large })
	var idle []net.Conn
	for range port.MaxConnections / 4 {
		for _, client := range []string{"127.0.0.3", "127.0.0.4", "127.0.0.5"} {
			idle = append(idle, dialFrom(t, client, address, ""))
		}
	}
	soon(t, "connections end", func() bool { return open(t, idle) <= port.MaxConnections-large })
	if n := open(t, active); n != large {
		t.Errorf("%d connections with a request are open; want %d", n, large)
	}
}

// TestReplacedConnectionsAreReset checks that the server resets a replaced connection. Without a
// reset, the kernel would still store the connection's unsent bytes.
func TestReplacedConnectionsAreReset(t *testing.T) {
	_, address := start(t, port.Config{})
	first := dial(t, address, "")
	flood(t, port.MaxConnections, address, "")
	_ = first.SetReadDeadline(time.Now().Add(patience))
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the replaced connection ends with %v, want a reset", err)
	}
}

// TestSlowReadersAreReset checks a client that does not read its whole answer within WriteTimeout.
// The server resets the client's connection.
func TestSlowReadersAreReset(t *testing.T) {
	file := filepath.Join(t.TempDir(), "artifact")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	must.Succeed(t, os.Truncate(file, 128<<20))
	for name, handler := range map[string]http.HandlerFunc{
		"a file": func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) },
		"bytes":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 16<<20)) },
	} {
		ended := make(chan struct{})
		_, address := start(t, port.Config{WriteTimeout: 100 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			handler(w, r)
		})})
		client := dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		<-ended
		if _, err := io.Copy(io.Discard, readOnly(client)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the connection ends with %v, want a reset", name, err)
		}
	}
}

// TestActiveAreReplacedLast fills a port with clients that send a request but do not read the
// answer. One more client reads its answer in parts. More than port.MaxConnections further clients
// connect, but the reading client gets its whole answer. Afterwards, a new client gets an answer
// too.
func TestActiveAreReplacedLast(t *testing.T) {
	file := filepath.Join(t.TempDir(), "artifact")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	must.Succeed(t, os.Truncate(file, 128<<20))
	_, address := start(t, port.Config{WriteTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, file)
	})})
	flood(t, port.MaxConnections-1, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	honest := dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(honest), nil)
	must.Succeed(t, err)
	for range 30 { // 30 times: read a part of the answer, then open connections of other clients
		if _, err := io.CopyN(io.Discard, answer.Body, 4<<20); err != nil {
			t.Fatal("a client that reads is replaced:", err)
		}
		flood(t, 2*port.MaxConnections/30, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Error("a client that reads is replaced:", err)
	}
	slow := dial(t, address, "")
	flood(t, port.MaxConnections/8, address, "")
	if status, err := ask(t, slow); status != http.StatusOK || err != nil {
		t.Errorf("a client that sends its request later gets %d, %v", status, err)
	}
}

// TestTimes checks that the server closes idle connections in time. The same is true for
// connections with an unfinished header or an unfinished handshake.
func TestTimes(t *testing.T) {
	plain := serve(t, listen(t, port.Config{}))
	secure := serve(t, listen(t, port.Config{TLS: newPKI(t).server(tls.NoClientCert)}))
	used := dial(t, plain, "")
	if status, err := ask(t, used); status != http.StatusOK || err != nil {
		t.Fatal(status, err)
	}
	var waiting sync.WaitGroup
	for what, c := range map[string]struct {
		connection net.Conn
		bound      time.Duration
	}{
		"no byte":                 {dial(t, plain, ""), port.HeaderTimeout},
		"an unfinished header":    {dial(t, plain, "GET / HTTP/1.1\r\nA: "), port.HeaderTimeout},
		"no handshake":            {dial(t, secure, ""), port.HeaderTimeout},
		"an unfinished handshake": {dial(t, secure, "\x16\x03\x01\x40\x00\x01\x00\xff\xff"), port.HeaderTimeout},
		"no further request":      {used, port.IdleTimeout},
	} {
		waiting.Go(func() {
			before := time.Now()
			if _, _ = io.Copy(io.Discard, readOnly(c.connection)); time.Since(before) > c.bound+5*time.Second {
				t.Errorf("%s: closed after %s, want %s", what, time.Since(before), c.bound)
			}
		})
	}
	waiting.Wait()
}

// readOnly returns the connection c as a reader. Reading fails after the time patience.
func readOnly(c net.Conn) io.Reader {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return c
}

// TestSize checks that the server refuses a header or a handshake that is too large.
func TestSize(t *testing.T) {
	_, plain := start(t, port.Config{})
	long := dial(t, plain, "GET / HTTP/1.1\r\nHost: a\r\nA: "+strings.Repeat("a", 24<<10)+"\r\n\r\n")
	if answer, err := http.ReadResponse(bufio.NewReader(long), nil); err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 24 KiB: %v, %v", answer, err)
	}
	// The text hello is a ClientHello of 64 KiB, in TLS records of 16 KiB. The last record is
	// missing.
	_, secure := start(t, port.Config{TLS: newPKI(t).server(tls.NoClientCert)})
	record := "\x16\x03\x01\x40\x00"
	hello := record + "\x01\x00\xff\xff" + strings.Repeat("a", 16<<10-4)
	for range 2 {
		hello += record + strings.Repeat("a", 16<<10)
	}
	c := dial(t, secure, hello)
	if !closed(c, port.HeaderTimeout/2) {
		t.Error("a handshake of 48 KiB is not refused")
	}
}

// TestBuffers checks how much of an answer the kernel stores if the client does not read. The limit
// is 1 MiB.
func TestBuffers(t *testing.T) {
	var written atomic.Int64
	_, address := start(t, port.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
			written.Add(64 << 10)
		}
	})})
	client := dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	must.Succeed(t, client.(*net.TCPConn).SetReadBuffer(16<<10))
	soon(t, "the answer begins", func() bool { return written.Load() > 0 })
	time.Sleep(500 * time.Millisecond) // with larger buffers, enough time to write the whole answer of 4 MiB
	if n := written.Load(); n > 1<<20 {
		t.Errorf("the buffers hold %d KiB, want at most 1024", n>>10)
	}
}

// TestHonestFirst opens thousands of silent connections to a port before its server starts, so that
// the connections wait in the kernel. Among the last are a connection of another address, and a
// request from the flood's own address. The server serves both among the first. The server never
// serves most of the others, since the port closes them while they wait.
func TestHonestFirst(t *testing.T) {
	const many = 4 * port.MaxConnections
	server := listen(t, port.Config{})
	var mu sync.Mutex
	var served []string
	server.Server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		mu.Lock()
		defer mu.Unlock()
		served = append(served, c.RemoteAddr().String())
		checkOptions(t, c)
		return ctx
	}
	address := server.Listener.Addr().String()
	flooding := flood(t, many-100, address, "")
	honest := []net.Conn{dialFrom(t, "127.0.0.2", address, ""), dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")}
	flooding = append(flooding, flood(t, 100, address, "")...)
	serve(t, server)
	for _, client := range honest {
		if status, err := ask(t, client); status != http.StatusOK || err != nil {
			t.Errorf("an honest client gets %d, %v", status, err)
		}
	}
	soon(t, "connections end", func() bool { return open(t, flooding) <= port.MaxConnections })
	mu.Lock()
	defer mu.Unlock()
	const before = many/port.MaxConnections + 2
	for _, client := range honest {
		if at := slices.Index(served, client.LocalAddr().String()); at < 0 || at > before {
			t.Errorf("an honest client is served after %d others; want at most %d", at, before)
		}
	}
	if len(served) > port.MaxConnections+100 {
		t.Errorf("%d connections were served; want few more than %d", len(served), port.MaxConnections)
	}
}

// checkOptions checks the options of an accepted connection. The kernel sends data at once and sends
// no keep-alive packets. It has small buffers, and Linux doubles their sizes.
func checkOptions(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	err = raw.Control(func(fd uintptr) {
		for _, option := range []struct {
			name                string
			level, option, want int
		}{
			{"the size of the buffer for reading", syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64 << 10},
			{"the size of the buffer for writing", syscall.SOL_SOCKET, syscall.SO_SNDBUF, 128 << 10},
			{"keep-alive", syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 0},
			{"no delay", syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1},
		} {
			if value, err := syscall.GetsockoptInt(int(fd), option.level, option.option); value != option.want || err != nil {
				t.Errorf("%s is %d, %v; want %d", option.name, value, err, option.want)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSlowReadersOverHTTP2 checks a client that permits a long answer over HTTP/2, but does not
// read the answer. The server closes the client's connection after WriteTimeout.
func TestSlowReadersOverHTTP2(t *testing.T) {
	pki := newPKI(t)
	config := pki.server(tls.NoClientCert)
	config.NextProtos = []string{"h2"}
	_, address := start(t, port.Config{TLS: config, WriteTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 16<<20))
	})})
	client := tls.Client(dial(t, address, ""), &tls.Config{RootCAs: pki.roots, ServerName: "localhost", NextProtos: []string{"h2"}})
	const (
		settings     = "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff" // the window of each request: 2 GiB
		windowUpdate = "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\x00\x00\x00"         // the window of the connection: 2 GiB
		get          = "\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x84\x87\x41\x01a"    // GET https://a/
		ping         = "\x00\x00\x08\x06\x01\x00\x00\x00\x00_answer_"                 // needs no answer
	)
	_, err := io.WriteString(client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+windowUpdate+get)
	must.Succeed(t, err)
	soon(t, "the server closes the connection", func() bool {
		_, err := io.WriteString(client, ping)
		return err != nil
	})
}

// TestVerifiedBeforeTheFirstRequest checks a client with a valid certificate. The client has
// completed the handshake, but has sent no request yet. A flood does not replace the client's
// connection.
func TestVerifiedBeforeTheFirstRequest(t *testing.T) {
	p := newPKI(t)
	_, address := start(t, port.Config{TLS: p.server(tls.RequireAndVerifyClientCert), Verified: true})
	client := tls.Client(dial(t, address, ""), &tls.Config{
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, RootCAs: p.roots, ServerName: "localhost", Certificates: []tls.Certificate{p.known},
	})
	must.Succeed(t, client.HandshakeContext(t.Context())) // with TLS 1.2, the server has then completed its handshake too
	flood(t, port.MaxConnections+10, address, "")
	_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	must.Succeed(t, err)
	if answer, err := http.ReadResponse(bufio.NewReader(readOnly(client)), nil); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("after the flood: %v, %v", answer, err)
	}
}

// TestVerifiedConnectionsStay floods a port that verifies client certificates. A verified
// connection stays open, over HTTP/1.1 and HTTP/2. A new client with a valid certificate gets an
// answer, and clients without a valid certificate get an error.
func TestVerifiedConnectionsStay(t *testing.T) {
	for name, protocols := range map[string][]string{"HTTP/1.1": {"http/1.1"}, "HTTP/2": {"h2"}} {
		t.Run(name, func(t *testing.T) {
			pki := newPKI(t)
			config := pki.server(tls.RequireAndVerifyClientCert)
			config.NextProtos = protocols
			var mu sync.Mutex
			seen := map[string]bool{}
			_, address := start(t, port.Config{TLS: config, Verified: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				seen[r.RemoteAddr] = true
				_, _ = io.WriteString(w, r.Proto)
			})})
			known, second := pki.client(t, protocols, true), pki.client(t, protocols, true)
			get := func(c *http.Client) {
				t.Helper()
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address, nil)
				must.Succeed(t, err)
				answer, err := c.Do(request)
				must.Succeed(t, err)
				defer answer.Body.Close()
				if body, err := io.ReadAll(answer.Body); err != nil || !strings.HasPrefix(string(body), name) {
					t.Errorf("%q, %v; want %s", body, err, name)
				}
			}
			get(known)
			for range 3 {
				strangers := flood(t, 2*port.MaxConnections, address, "")
				soon(t, "the port is full", func() bool { return closed(strangers[port.MaxConnections-1], time.Millisecond) })
				get(known)
			}
			// The client thief shows a valid certificate, but does not have the certificate's
			// private key.
			thief := pki.client(t, protocols, true)
			transport := thief.Transport.(*http.Transport)
			stolen := transport.TLSClientConfig.Certificates[0]
			stolen.PrivateKey = newKey(t)
			transport.TLSClientConfig.Certificates = []tls.Certificate{stolen}
			for _, stranger := range []*http.Client{thief, pki.client(t, protocols, false)} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address, nil)
				must.Succeed(t, err)
				if answer, err := stranger.Do(request); err == nil {
					t.Errorf("a stranger gets %s", answer.Status)
					_ = answer.Body.Close()
				}
			}
			mu.Lock()
			if len(seen) != 1 {
				t.Errorf("the client used %d connections, want 1: %v", len(seen), seen)
			}
			mu.Unlock()
			get(second)
		})
	}
}

// TestErrorsNameTheFlag opens a port whose address is already in use. The error contains the flag.
func TestErrorsNameTheFlag(t *testing.T) {
	_, address := start(t, port.Config{})
	_, err := port.Open(t.Context(), port.Config{Flag: "--metrics-address", Address: address})
	if err == nil || !strings.Contains(err.Error(), "--metrics-address") {
		t.Error(err)
	}
}

// pki is a CA with two certificates that the CA has signed. The certificate serving is for a
// server, and known is for a client.
type pki struct {
	roots          *x509.CertPool
	serving, known tls.Certificate
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	return key
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	ca, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	p := &pki{roots: x509.NewCertPool()}
	p.roots.AddCert(ca)
	for _, into := range []*tls.Certificate{&p.serving, &p.known} {
		leaf := newKey(t)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, DNSNames: []string{"localhost"},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, ca, leaf.Public(), key)
		must.Succeed(t, err)
		*into = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: leaf}
	}
	return p
}

// server returns the TLS configuration of a server. The argument clients says how the server checks
// client certificates.
func (p *pki) server(clients tls.ClientAuthType) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{p.serving}, ClientAuth: clients, ClientCAs: p.roots}
}

// client returns an HTTP client with its own connections. If known is true, the client has a
// certificate.
func (p *pki) client(t *testing.T, protocols []string, known bool) *http.Client {
	t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.roots, ServerName: "localhost", NextProtos: protocols}
	if known {
		config.Certificates = []tls.Certificate{p.known}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: slices.Contains(protocols, "h2")}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}
