package port

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// newListener returns a listener on a free port of the loopback network. It closes when the test
// ends.
func newListener(t *testing.T) *listener {
	t.Helper()
	var listening net.ListenConfig
	tcp, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = tcp.Close() })
	l := &listener{Listener: tcp}
	l.unverified.max = MaxConnections
	return l
}

// connect opens n connections to a listener.
func connect(t *testing.T, l *listener, n int) []*net.TCPConn {
	t.Helper()
	clients := make([]*net.TCPConn, n)
	for i := range clients {
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		must.Succeed(t, err)
		t.Cleanup(func() { _ = client.Close() })
		clients[i] = client.(*net.TCPConn)
	}
	return clients
}

// TestWaitingEndWithTheListener closes a listener with waiting connections. The next call of Accept
// closes these connections, and returns an error. A connection that Accept has returned stays open.
func TestWaitingEndWithTheListener(t *testing.T) {
	l := newListener(t)
	clients := connect(t, l, 5)
	accepted, err := l.Accept()
	must.Succeed(t, err)
	defer accepted.Close()
	must.Succeed(t, l.Close())
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener: %v", err)
	}
	for _, client := range clients {
		_ = client.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := client.Read(make([]byte, 1))
		timeout, ok := errors.AsType[net.Error](err)
		open, want := ok && timeout.Timeout(), client.LocalAddr().String() == accepted.RemoteAddr().String()
		if open != want {
			t.Errorf("the connection is open: %t; want %t: %v", open, want, err)
		}
	}
	if n := l.unverified.idle.Len(); n != 1 {
		t.Errorf("the listener counts %d connections; want 1", n)
	}
}

// TestClientsGoneAreNotAccepted resets waiting connections. Accept returns none of them.
func TestClientsGoneAreNotAccepted(t *testing.T) {
	l := newListener(t)
	clients := connect(t, l, 6)
	first, err := l.Accept()
	must.Succeed(t, err)
	defer first.Close()
	for _, gone := range clients[1:3] {
		must.Succeed(t, errors.Join(gone.SetLinger(0), gone.Close()))
	}
	for i, late := range connect(t, l, 2) { // these clients are gone before the port takes their connections
		must.Succeed(t, errors.Join(late.SetLinger(-i), late.Close()))
	}
	for _, want := range clients[3:] {
		next, err := l.Accept()
		must.Succeed(t, err)
		defer next.Close()
		if next.RemoteAddr().String() != want.LocalAddr().String() {
			t.Errorf("Accept returns %s; want %s", next.RemoteAddr(), want.LocalAddr())
		}
	}
	if !l.empty() {
		t.Error("a connection still waits")
	}
}

// TestWaitingSockets checks that child processes do not get a socket that waits.
func TestWaitingSockets(t *testing.T) {
	l := newListener(t)
	connect(t, l, 1)
	raw, err := l.Listener.(*net.TCPListener).SyscallConn()
	must.Succeed(t, err)
	must.Succeed(t, raw.Control(func(fd uintptr) {
		c, err := acceptSocket(int(fd))
		must.Succeed(t, err)
		defer closeSocket(c.socket)
		if flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(c.socket), syscall.F_GETFD, 0); flags&syscall.FD_CLOEXEC == 0 {
			t.Error("a child process gets the socket")
		}
	}))
}

// TestReturnedAreReplacedLast fills a port with connections of one client. The port closes those
// that wait before those that Accept has returned.
func TestReturnedAreReplacedLast(t *testing.T) {
	l := &listener{}
	l.unverified.max = 3
	client := netip.MustParseAddr("127.0.0.1")
	arrive := func() *conn {
		c := &conn{TCPConn: &net.TCPConn{}, client: client}
		l.arrive(c)
		return c
	}
	first, second := arrive(), arrive()
	arrive()
	returned, err := l.next()
	must.Succeed(t, err)
	if returned != first {
		t.Error("next does not return the oldest connection of the client")
	}
	arrive()
	if first.closed || !second.closed {
		t.Errorf("the returned connection is closed: %t, the oldest that waits: %t; want false, true", first.closed, second.closed)
	}
}

// TestNoConnectionWaitsForEver has new connections of other clients arrive without end. All of them
// have fewer connections than the first client. Yet next returns the connections of the first client.
func TestNoConnectionWaitsForEver(t *testing.T) {
	l := &listener{}
	l.unverified.max = MaxConnections
	other := netip.MustParseAddr("10.0.0.1")
	arrive := func(client netip.Addr) { l.arrive(&conn{TCPConn: &net.TCPConn{}, client: client}) }
	first := netip.MustParseAddr("127.0.0.1")
	arrive(first)
	arrive(first)
	for turn := 1; l.waiting.clients[first] > 0; turn++ {
		if turn > 10 {
			t.Fatal("after ten turns, a connection still waits")
		}
		arrive(other)
		other = other.Next()
		_, err := l.next()
		must.Succeed(t, err)
	}
}

// TestZonesAreOneClient checks the address by which connections count for a client. The address has
// no zone, and an IPv4 address is never written as an IPv6 address.
func TestZonesAreOneClient(t *testing.T) {
	l := &listener{}
	l.unverified.max = MaxConnections
	for _, client := range []string{"fe80::1%eth0", "fe80::1", "127.0.0.1", "::ffff:127.0.0.1"} {
		l.arrive(&conn{TCPConn: &net.TCPConn{}, client: netip.MustParseAddr(client)})
	}
	if n := len(l.waiting.clients); n != 2 {
		t.Errorf("four connections come from %d clients; want 2", n)
	}
}
