package port

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
)

const (
	// firstBytes is how much more than MaxHeaderBytes a client may send until its first request's
	// header is complete. firstBytes is enough for a TLS handshake, and for the TLS record in which
	// the header ends. This record can also have bytes that follow the header.
	firstBytes = 32 << 10
	// progress is the number of bytes of a file that are sent between two notes of progress.
	progress = 1 << 20
	// readBuffer and writeBuffer are the sizes of the kernel's buffers of a connection, in bytes.
	// Linux doubles them. Without a bound they grow to several MiB, which count as the container's
	// memory. A readBuffer of 16 KiB would be too small for a client on the same machine. Such a
	// client sends TCP packets of up to 64 KiB. It delays a packet until the buffer has room for
	// half of the packet. So the client would send only 16 KiB in 0.2 s.
	readBuffer, writeBuffer = 32 << 10, 64 << 10
)

// errFirstBytes is the error of a connection that sends too much before its first request. A
// handshake's messages would otherwise fill 64 KiB or more of memory.
var errFirstBytes = errors.New("the client sends too much before its first request")

// listener accepts the connections of a port and bounds their number. A new connection is
// unverified. It becomes verified by its TLS handshake, if the port verifies client certificates.
// Unverified and verified connections are bounded apart.
//
//	Accept ──▶ unverified ──handshake──▶ verified    (a port that verifies clients)
//	               │
//	               └──▶ stays unverified             (every other port)
type listener struct {
	net.Listener

	verifies      bool // a complete handshake proves that the client has a valid certificate
	maxFirstBytes int  // bytes that a client may send before its first request

	mu                   sync.Mutex // guards what follows, and the fields of conn; never held during I/O
	unverified, verified class
}

// class is a set of at most max connections. Each connection is in one of two lists: idle or
// active. Both lists are in the order of the connections' last progress, oldest first.
type class struct {
	max int
	// idle has the connections without a request under way, for example during a handshake or an
	// unfinished header. An idle connection makes progress when it starts, and when a request ends.
	idle list.List
	// active has the connections with a request under way. An active connection makes progress
	// whenever the port reads or writes bytes.
	active list.List
}

// replaced returns the connection that a new connection replaces, or nil if the class is not full.
// Usually, this is the connection that has been idle longest. But if active connections have three
// quarters of the places or more, the active connection with the oldest progress is replaced. So
// clients that read no answers cannot take the last quarter of the places. New clients still have
// time to send a request.
func (s *class) replaced() *conn {
	if s.idle.Len()+s.active.Len() < s.max {
		return nil
	}
	oldest := s.idle.Front()
	if s.idle.Len() <= s.max/4 && s.active.Len() > 0 {
		oldest = s.active.Front()
	}
	return oldest.Value.(*conn)
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{TCPConn: accepted.(*net.TCPConn), listener: l}
	if err := errors.Join(c.SetReadBuffer(readBuffer), c.SetWriteBuffer(writeBuffer)); err != nil {
		_ = c.TCPConn.Close() // the next read fails too, and ends the connection
	}
	l.move(c, &l.unverified, false)
	return c, nil
}

// connState is the function ConnState of the [http.Server]. It notes whether a connection has a
// request under way.
func (l *listener) connState(served net.Conn, state http.ConnState) {
	if over, ok := served.(*tls.Conn); ok {
		served = over.NetConn()
	}
	c, ok := served.(*conn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	to := &l.unverified
	if l.verifies {
		to = &l.verified
	}
	l.move(c, to, state == http.StateActive)
}

// move puts a connection at the end of the list active or idle of a class. If the class is full,
// move closes another connection of the class: see replaced. If c is closed, move does nothing.
func (l *listener) move(c *conn, to *class, active bool) {
	l.mu.Lock()
	if c.closed {
		l.mu.Unlock()
		return
	}
	c.leave()
	replaced := to.replaced()
	if replaced != nil {
		replaced.leave()
		replaced.closed = true
	}
	c.in = &to.idle
	if active {
		c.in = &to.active
	}
	c.place = c.in.PushBack(c)
	c.active = active
	c.used = c.used || to == &l.verified || active
	l.mu.Unlock()
	if replaced != nil {
		replaced.dropUnsent()
		_ = replaced.TCPConn.Close() // net/http notices, and ends the connection's goroutine
	}
}

// conn is a connection of a listener. Package net/http sends files without copying them, because
// conn has the method ReadFrom.
type conn struct {
	*net.TCPConn

	listener *listener

	// The mutex of the listener guards these fields.
	in     *list.List    // the list that has the connection; nil if closed
	place  *list.Element // the connection's element of the list
	active bool          // a request is under way
	used   bool          // the header of a request was complete, or the connection is verified
	closed bool
	first  int // bytes read before the first request
}

// leave removes the connection from its list. The caller holds the mutex.
func (c *conn) leave() {
	if c.in != nil {
		c.in.Remove(c.place)
		c.in, c.place = nil, nil
	}
}

// dropUnsent makes the kernel drop what is not sent yet when the connection is closed. Otherwise,
// the kernel keeps those bytes for minutes if the client does not read.
func (c *conn) dropUnsent() { _ = c.SetLinger(0) }

// transferred notes that bytes were read or written. It fails if the client has sent too much
// before its first request.
func (c *conn) transferred(read int) error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.active && c.in != nil {
		c.in.MoveToBack(c.place)
	}
	if c.used {
		return nil
	}
	if c.first += read; c.first > c.listener.maxFirstBytes {
		return errFirstBytes
	}
	return nil
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if over := c.transferred(n); over != nil {
		return 0, over
	}
	return n, err
}

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	_ = c.transferred(0)
	if err != nil {
		c.dropUnsent()
	}
	return n, err
}

// ReadFrom implements [io.ReaderFrom]. It sends the content of a reader in parts, so that progress
// is noted.
func (c *conn) ReadFrom(r io.Reader) (sent int64, err error) {
	whole, ok := r.(*io.LimitedReader)
	if !ok {
		whole = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	for whole.N > 0 {
		part := min(whole.N, progress)
		n, err := c.TCPConn.ReadFrom(io.LimitReader(whole.R, part))
		sent += n
		whole.N -= n
		_ = c.transferred(0)
		if err != nil {
			c.dropUnsent()
		}
		if err != nil || n < part {
			return sent, err
		}
	}
	return sent, nil
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.leave()
	c.closed = true
	c.listener.mu.Unlock()
	return c.TCPConn.Close()
}
