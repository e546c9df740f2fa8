package local

import (
	"net"
	"slices"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestReserve checks that Reserve returns no port that is reserved already, or on which a program
// listens.
func TestReserve(t *testing.T) {
	first, err := Reserve(500)
	must.Succeed(t, err)
	t.Cleanup(first.Release)
	second, err := Reserve(500)
	must.Succeed(t, err)
	t.Cleanup(second.Release)
	all := slices.Concat(first.Addresses, second.Addresses)
	slices.Sort(all)
	if len(slices.Compact(all)) != 1000 {
		t.Error("a port was reserved twice")
	}
	for _, address := range first.Addresses[:10] {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("a program cannot listen on a reserved port: %v", err)
		}
		t.Cleanup(func() { _ = listener.Close() })
	}
}

// TestReserveAgain asserts that a port is free again once it is released, unless a program listens
// on it.
func TestReserveAgain(t *testing.T) {
	first, err := Reserve(1)
	must.Succeed(t, err)
	address, err := net.ResolveTCPAddr("tcp", first.Addresses[0])
	must.Succeed(t, err)
	var again Reservation
	if err := again.add(address.Port); err == nil {
		t.Error("a reserved port was reserved again")
	}
	first.Release()
	first.Release()
	listener, err := net.ListenTCP("tcp", address)
	must.Succeed(t, err)
	if err := again.add(address.Port); err == nil {
		t.Error("a port was reserved on which a program listens")
	}
	must.Succeed(t, listener.Close())
	if err := again.add(address.Port); err != nil {
		t.Errorf("a free port was not reserved: %v", err)
	}
	again.Release()
}
