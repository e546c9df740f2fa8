package local

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// Ports are reserved from firstPort up to endOfPort. Operating systems use higher ports for client
// connections. So no client connection can take a reserved port before its program listens on it.
// The ports for clients ("ephemeral ports") begin at 49152 according to IANA, and at 32768 on
// Linux.
const (
	firstPort = 10_000
	endOfPort = 32_000
)

// Reservation reserves TCP ports of 127.0.0.1 for programs that will listen on them. No two
// Reservations have the same port, even if they are in different processes. A Reservation listens
// on the UDP port of the same number, so no other Reservation can have the port.
type Reservation struct {
	// Addresses are the reserved addresses, IP and port.
	Addresses []string

	marks []net.PacketConn
}

// Reserve reserves n ports that nobody listens on. The caller releases them when the programs have
// ended. The caller must keep a reference to the Reservation until then: the garbage collector
// would release the ports.
func Reserve(n int) (_ *Reservation, err error) {
	r := &Reservation{}
	defer func() {
		if err != nil {
			r.Release()
		}
	}()
	var last error
	for range 100 * (n + 1) {
		if len(r.Addresses) == n {
			return r, nil
		}
		if err := r.add(firstPort + rand.IntN(endOfPort-firstPort)); err != nil { //nolint:gosec // not a secret
			last = err
		}
	}
	return nil, fmt.Errorf("find %d free ports between %d and %d: %w", n, firstPort, endOfPort, last)
}

// add reserves a port, unless somebody has reserved it or listens on it.
func (r *Reservation) add(port int) error {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)) //nolint:gosec // a port
	mark, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		return err
	}
	probe, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address))
	if err == nil {
		err = probe.Close()
	}
	if err != nil {
		return errors.Join(err, mark.Close())
	}
	r.Addresses, r.marks = append(r.Addresses, address.String()), append(r.marks, mark)
	return nil
}

// Release frees the ports. It does nothing for a nil Reservation or on a second call.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	for _, mark := range r.marks {
		_ = mark.Close() // nothing was sent through this UDP socket, so its error does not matter
	}
	r.marks = nil
}
