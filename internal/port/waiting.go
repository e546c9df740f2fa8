package port

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// maxDrained is the largest number of connections that drain takes from the kernel at once. During
// a longer flood, Accept must return connections in between.
const maxDrained = MaxConnections

// Accept implements [net.Listener]. It prefers clients with few waiting connections; see next.
//
// Before that, Accept takes all connections from the kernel. The kernel's own queue has up to 4096
// connections, and does not know which clients have many. So the port closes most connections of a
// flood before package net/http spends time on them. Only one goroutine may call Accept.
func (l *listener) Accept() (net.Conn, error) {
	for {
		if l.empty() {
			accepted, err := l.Listener.Accept()
			if err != nil {
				return nil, err
			}
			c := &conn{TCPConn: accepted.(*net.TCPConn), preferred: true}
			if client, ok := c.RemoteAddr().(*net.TCPAddr); ok { // nil on some systems if the client is gone already
				c.client = client.AddrPort().Addr()
			}
			l.arrive(c)
		}
		if err := l.drain(); err != nil {
			l.dropWaiting()
			return nil, err
		}
		if c, err := l.next(); c != nil || err != nil {
			return c, err
		}
	}
}

// empty reports whether no connection waits.
func (l *listener) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len() == 0
}

// arrive adds a new connection to the queue waiting and to the class unverified. If the class is
// full, arrive closes another connection; see [class.replaced].
func (l *listener) arrive(c *conn) {
	c.listener, c.client = l, c.client.Unmap().WithZone("")
	l.mu.Lock()
	replaced := l.put(c, &l.unverified, false)
	c.waits = l.waiting.add(c)
	l.mu.Unlock()
	replaced.drop()
}

// drain takes the connections of the port from the kernel, at most maxDrained, and adds them to the
// queue waiting. It does not wait for further connections. If the listener is closed, the result is
// [net.ErrClosed].
//
// The new connections are plain sockets. The conversion to a [net.TCPConn] costs as much as closing
// the socket, and most connections of a flood are closed while they wait.
func (l *listener) drain() error {
	listening, err := l.Listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	return listening.Control(func(fd uintptr) {
		for range maxDrained {
			c, err := acceptSocket(int(fd))
			switch {
			case err == nil:
				l.arrive(c)
			case !errors.Is(err, syscall.ECONNABORTED) && !errors.Is(err, syscall.EINTR):
				return // no connection is left, or the next call of Accept gets the error
			}
		}
	})
}

// acceptSocket takes one connection from the kernel. The argument is the file descriptor of the
// listening socket, which does not block. If the client is already gone, the error is ECONNABORTED.
// If there is no connection, the result is another error.
func acceptSocket(listening int) (*conn, error) {
	syscall.ForkLock.RLock() // a child process must not get the socket
	socket, from, err := syscall.Accept(listening)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	n, _, err := syscall.Recvfrom(socket, make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	if n <= 0 && !errors.Is(err, syscall.EAGAIN) {
		closeSocket(socket)
		return nil, syscall.ECONNABORTED
	}
	c := &conn{socket: socket, preferred: n > 0}
	switch from := from.(type) {
	case *syscall.SockaddrInet4:
		c.client = netip.AddrFrom4(from.Addr)
	case *syscall.SockaddrInet6:
		c.client = netip.AddrFrom16(from.Addr)
	}
	return c, nil
}

// closeSocket closes a connection without a [net.TCPConn]. The kernel resets the connection.
func closeSocket(socket int) {
	_ = syscall.SetsockoptLinger(socket, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	_ = syscall.Close(socket)
}

// next removes a connection from the queue waiting, and returns the connection; see choose. If no
// connection waits, the result is nil. The error says that the program has too many open files.
func (l *listener) next() (*conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.waiting.Len() > 0 {
		c := l.choose()
		err := c.convert()
		if err != nil {
			c.leave()
			c.closed = true
		}
		switch {
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return nil, err
		case err == nil:
			l.waiting.remove(c.waits)
			c.waits = nil
			c.in.MoveToBack(c.place) // a full port first closes connections that wait
			return c, nil
		}
	}
	return nil, nil
}

// choose returns a waiting connection of the client address with fewest waiting connections: the
// oldest preferred connection, or else the oldest. So an honest client is served soon, even if the
// client has the same address as a flood of silent connections. But each fourth call returns the
// oldest connection of all clients, so that no connection waits for ever. The caller holds the mutex
// of the listener.
func (l *listener) choose() *conn {
	if l.turn++; l.turn%4 == 0 {
		return l.waiting.Front().Value.(*conn)
	}
	oldest := l.waiting.ofFewest()
	for e := l.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); c.client == oldest.client && c.preferred {
			return c
		}
	}
	return oldest
}

// errGone is the error if a client has closed its connection while the connection waited.
var errGone = errors.New("the client is gone")

// convert makes a [net.TCPConn] of the socket of a connection, if the connection has none. If this
// fails, convert closes the socket and returns an error. The caller holds the mutex of the listener:
// meanwhile, another goroutine must not close the socket.
func (c *conn) convert() error {
	if c.TCPConn != nil {
		return nil
	}
	file := os.NewFile(uintptr(c.socket), "connection")
	defer func() { _ = file.Close() }() // FileConn makes a copy of the file descriptor
	converted, err := net.FileConn(file)
	if err != nil {
		return err
	}
	if converted.RemoteAddr() == nil {
		_ = converted.Close()
		return errGone
	}
	c.TCPConn = converted.(*net.TCPConn)
	_ = c.SetKeepAlive(false) // FileConn has switched keep-alive on
	return nil
}

// dropWaiting closes all waiting connections.
func (l *listener) dropWaiting() {
	for {
		l.mu.Lock()
		c := l.waiting.ofFewest()
		if c != nil {
			c.leave()
			c.closed = true
		}
		l.mu.Unlock()
		if c == nil {
			return
		}
		c.drop()
	}
}
