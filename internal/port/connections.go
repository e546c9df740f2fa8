package port

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
)

const (
	// firstBytes is how many bytes more than MaxHeaderBytes a client may send until the header of
	// its first request is complete. firstBytes is enough for a TLS handshake, and for the TLS
	// record in which the header ends. This record may also contain bytes after the header.
	firstBytes = 32 << 10
	// progress is the size of the parts in which ReadFrom sends a file, in bytes.
	progress = 1 << 20
	// readBuffer and writeBuffer are the sizes of a connection's buffers in the kernel, in bytes.
	// Linux doubles both sizes. Without a limit, the buffers would grow to several MiB, and would
	// count as the container's memory.
	readBuffer, writeBuffer = 32 << 10, 64 << 10
)

// errFirstBytes is the error if a client sends too much before its first request. The limit is
// maxFirstBytes of the listener. Without this limit, the messages of a handshake could fill 64 KiB
// or more.
var errFirstBytes = errors.New("the client sends too much before its first request")

// listener accepts the connections of a port and limits their number. A new connection waits until
// Accept returns the connection. A new connection is unverified. If the port verifies client
// certificates, a complete TLS handshake makes the connection verified. Unverified and verified
// connections have separate limits.
//
//	drain ──▶ waiting ──Accept──▶ unverified ──handshake──▶ verified    (a port that verifies clients)
//	                                  │
//	                                  └──▶ stays unverified             (every other port)
type listener struct {
	net.Listener

	verifies      bool // only a client with a valid certificate can complete a handshake
	maxFirstBytes int  // how many bytes a client may send until its first request's header is complete

	mu                   sync.Mutex // guards the following fields, and fields of conn; not held during I/O with clients
	unverified, verified class
	// waiting has the connections that Accept has not returned yet. These connections are also in
	// the class unverified.
	waiting queue
	turn    int // the number of calls of choose
}

// class is a set of at most max connections: the verified or the unverified connections of a
// listener.
type class struct {
	max int
	// idle has the connections that serve no request, for example during a handshake or an
	// unfinished header. An idle connection makes progress when the port accepts the connection,
	// when a handshake makes the connection verified, and when a request ends.
	idle queue
	// active has the connections that serve a request. An active connection makes progress when the
	// port reads or writes bytes of the connection.
	active queue
}

// replaced returns the connection that the port closes to make room for a new connection. If the
// class is not full, the result is nil. Usually, replaced chooses an idle connection. But if at
// most max/4 connections of the class are idle, replaced chooses an active connection. So new
// clients have time to send a request.
func (s *class) replaced() *conn {
	switch {
	case s.idle.Len()+s.active.Len() < s.max:
		return nil
	case s.idle.Len() <= s.max/4:
		return s.active.ofMost()
	default:
		return s.idle.ofMost()
	}
}

// queue is a list of connections, in the order of their last progress, oldest first.
type queue struct {
	list.List

	// clients maps each client's IP address to the client's number of connections in this queue.
	clients map[netip.Addr]int
}

// add adds a connection to the end of the queue. The result is the connection's place in the queue.
func (q *queue) add(c *conn) (place *list.Element) {
	if q.clients == nil {
		q.clients = map[netip.Addr]int{}
	}
	q.clients[c.client]++
	return q.PushBack(c)
}

// remove removes the connection at a place of the queue.
func (q *queue) remove(place *list.Element) {
	c := q.Remove(place).(*conn)
	if q.clients[c.client]--; q.clients[c.client] == 0 {
		delete(q.clients, c.client)
	}
}

// ofMost returns the connection with the oldest progress of the client address with most
// connections in the queue. So a client with many connections cannot replace those of a client with
// few. If several addresses have equally many, ofMost chooses among the connections of all these
// addresses. If the queue is empty, the result is nil.
func (q *queue) ofMost() *conn { return q.oldest(func(n, other int) bool { return n > other }) }

// ofFewest returns the same as ofMost, but for the client address with fewest connections.
func (q *queue) ofFewest() *conn { return q.oldest(func(n, other int) bool { return n < other }) }

// oldest returns the connection with the oldest progress of the client address with the best number
// of connections in the queue. The function better compares two such numbers.
func (q *queue) oldest(better func(n, other int) bool) *conn {
	best := 0
	for _, n := range q.clients {
		if best == 0 || better(n, best) {
			best = n
		}
	}
	for e := q.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); q.clients[c.client] == best {
			return c
		}
	}
	return nil
}

// setBuffers sets the sizes of a listening socket's buffers in the kernel. The connections of the
// socket inherit these sizes. So the port does not have to set the sizes of each connection. The
// function setBuffers is the function Control of a [net.ListenConfig].
func setBuffers(_, _ string, listening syscall.RawConn) error {
	var failed error
	err := listening.Control(func(fd uintptr) {
		failed = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, readBuffer),
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, writeBuffer))
	})
	return errors.Join(err, failed)
}

// connState is the function ConnState of the [http.Server]. When a request begins or ends,
// connState moves the connection to the queue active or idle.
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

// move puts the connection c at the end of a queue of the class "to". The parameter active says
// which queue: active or idle. If the class is full, move closes another connection of the class;
// see [class.replaced]. If c is closed, move does nothing.
func (l *listener) move(c *conn, to *class, active bool) {
	l.mu.Lock()
	if c.closed {
		l.mu.Unlock()
		return
	}
	c.leave()
	replaced := l.put(c, to, active)
	l.mu.Unlock()
	replaced.drop()
}

// put does the work of move for a connection that is in no class. The result is the connection that
// the caller must drop, or nil. The caller holds the mutex of the listener.
func (l *listener) put(c *conn, to *class, active bool) (replaced *conn) {
	if replaced = to.replaced(); replaced != nil {
		replaced.leave()
		replaced.closed = true
	}
	c.active = active
	c.in = &to.idle
	if active {
		c.in = &to.active
	}
	c.place = c.in.add(c)
	c.used = c.used || to == &l.verified || active
	return replaced
}

// conn is a connection of a listener. To send a file, package net/http calls the method ReadFrom of
// conn. The kernel then sends the file, without a copy in the program's memory.
type conn struct {
	*net.TCPConn // nil while the connection waits as a socket

	socket   int // the file descriptor of a connection that waits; see [listener.drain]
	listener *listener
	client   netip.Addr // the client's IP address
	// preferred says that the client had sent data when the connection arrived. A connection that
	// arrives while no other connection waits is also preferred.
	preferred bool

	// The mutex of the listener guards the following fields.
	in     *queue        // the queue idle or active that contains the connection; nil if closed
	place  *list.Element // the connection's place in the queue
	waits  *list.Element // the connection's place in the queue waiting of the listener; nil if not there
	active bool          // the connection serves a request
	used   bool          // the client has sent the whole header of a request, or is verified
	closed bool
	first  int // number of bytes read while used is false
}

// leave removes the connection from its queues. The caller holds the mutex of the listener.
func (c *conn) leave() {
	if c.in != nil {
		c.in.remove(c.place)
		c.in, c.place = nil, nil
	}
	if c.waits != nil {
		c.listener.waiting.remove(c.waits)
		c.waits = nil
	}
}

// drop closes a connection that the listener has removed from its queues. If c is nil, drop does
// nothing.
func (c *conn) drop() {
	switch {
	case c == nil:
	case c.TCPConn == nil:
		closeSocket(c.socket)
	default:
		c.dropUnsent()
		_ = c.TCPConn.Close() // the goroutine of the connection gets an error, and ends
	}
}

// dropUnsent makes the kernel drop the unsent bytes of the connection when the connection is
// closed. Otherwise, the kernel would store these bytes for minutes if the client does not read.
func (c *conn) dropUnsent() { _ = c.SetLinger(0) }

// transferred records the progress of a connection after bytes were read or written. The argument
// read is the number of bytes read. The result is errFirstBytes if the client has sent too much
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

// ReadFrom implements [io.ReaderFrom]. It sends the content of r in parts. After each part,
// ReadFrom records progress. So a full port first replaces connections whose clients do not read.
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
