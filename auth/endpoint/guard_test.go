package endpoint_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestGuardCheck(t *testing.T) {
	guard := endpoint.Guard{DenyCIDRs: mustCIDRs(t, "10.0.0.0/8,fd12::/16,::ffff:192.168.0.0/112")}

	for addr, kind := range map[string]string{
		"52.94.133.131":    "",
		"2600:1f14::1":     "",
		"172.16.0.1":       "",
		"192.169.0.1":      "",
		"fd13::1":          "",
		"::ffff:8.8.8.8":   "",
		"64:ff9b::808:808": "",

		"127.0.0.1":          "loopback",
		"127.255.255.254":    "loopback",
		"::1":                "loopback",
		"::ffff:127.0.0.1":   "loopback",
		"0.0.0.0":            "unspecified",
		"::":                 "unspecified",
		"::ffff:0.0.0.0":     "unspecified",
		"0.1.2.3":            "of this network only",
		"255.255.255.255":    "of this network only",
		"fec0::1":            "of this network only",
		"169.254.1.1":        "link-local",
		"fe80::1":            "link-local",
		"fe80::1%eth0":       "link-local",
		"224.0.0.1":          "multicast",
		"239.255.255.250":    "multicast",
		"ff02::1":            "multicast",
		"ff02::1%eth0":       "multicast",
		"169.254.169.254":    "of a metadata service",
		"169.254.170.2":      "of a metadata service",
		"169.254.170.23":     "of a metadata service",
		"::ffff:a9fe:a9fe":   "of a metadata service",
		"fd00:ec2::254":      "of a metadata service",
		"fd00:ec2::23":       "of a metadata service",
		"fd00:ec2::254%eth0": "of a metadata service",
		"fd20:ce::254":       "of a metadata service",
		"168.63.129.16":      "of a metadata service",
		"100.100.100.200":    "of a metadata service",

		"10.1.2.3":                  "in --deny-cidrs",
		"::ffff:10.1.2.3":           "in --deny-cidrs",
		"fd12::1":                   "in --deny-cidrs",
		"fd12::1%eth0":              "in --deny-cidrs",
		"192.168.3.4":               "in --deny-cidrs",
		"::ffff:192.168.3.4":        "in --deny-cidrs",
		"64:ff9b::7f00:1":           "loopback, inside an IPv6 address",
		"64:ff9b::a9fe:a9fe":        "of a metadata service, inside an IPv6 address",
		"64:ff9b:1::a9fe:a9fe":      "of a metadata service, inside an IPv6 address",
		"::a9fe:a9fe":               "of a metadata service, inside an IPv6 address",
		"::10.1.2.3":                "in --deny-cidrs, inside an IPv6 address",
		"2002:7f00:1::1":            "loopback, inside an IPv6 address",
		"2002:a01:203::1":           "in --deny-cidrs, inside an IPv6 address",
		"2600::5efe:a9fe:a9fe":      "of a metadata service, inside an IPv6 address",
		"2600::200:5efe:7f00:1":     "loopback, inside an IPv6 address",
		"2001:0:102:304::80ff:fffe": "loopback, inside an IPv6 address",
		"::ffff:0:127.0.0.1":        "loopback, inside an IPv6 address",
		"::ffff:0:a9fe:a9fe":        "of a metadata service, inside an IPv6 address",
		"::ffff:0:8.8.8.8":          "",
	} {
		parsed, err := netip.ParseAddr(addr)
		if err != nil {
			t.Fatal(err)
		}

		checkKind(t, addr, guard.Check(parsed), kind)
	}

	checkKind(t, "the zero address", guard.Check(netip.Addr{}), "unspecified")
}

// checkKind fails the test unless err is an *endpoint.AddressError of that kind, or nil where kind is empty.
func checkKind(t *testing.T, what string, err error, kind string) {
	t.Helper()

	if kind == "" {
		if err != nil {
			t.Errorf("%s: got error %v", what, err)
		}

		return
	}

	refusal, ok := errors.AsType[*endpoint.AddressError](err)
	if !ok || refusal.Kind != kind {
		t.Errorf("%s: got error %v, want it refused as %q", what, err, kind)
	}
}

func TestGuardControl(t *testing.T) {
	var guard endpoint.Guard

	for _, tt := range []struct{ network, address, kind string }{
		{"tcp4", "52.94.133.131:443", ""},
		{"tcp6", "[2600:1f14::1]:443", ""},
		{"tcp6", "[::1]:443", "loopback"},
		{"tcp6", "[fe80::1%eth0]:443", "link-local"},
		{"tcp", "sts.amazonaws.com:443", "not an IP address"},
		{"tcp", "", "not an IP address"},
		{"udp4", "52.94.133.131:443", "not of TCP"},
		{"unix", "/var/run/docker.sock", "not of TCP"},
	} {
		checkKind(t, tt.network+" "+tt.address, guard.Control(tt.network, tt.address, nil), tt.kind)
	}
}

// resolver answers every question for a host with the addresses that lookup gives, over DNS.
func resolver(t *testing.T, lookup func(host string) []string) *net.Resolver {
	t.Helper()

	answer := func(query []byte) ([]byte, error) {
		var msg dnsmessage.Message
		if err := msg.Unpack(query); err != nil {
			return nil, err
		}

		q := msg.Questions[0]
		msg.Response, msg.RecursionAvailable, msg.Additionals = true, true, nil

		for _, s := range lookup(strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))) {
			header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}

			switch addr := netip.MustParseAddr(s); {
			case addr.Is4() && q.Type == dnsmessage.TypeA:
				msg.Answers = append(msg.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
			case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
				msg.Answers = append(msg.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
			}
		}

		return msg.Pack()
	}

	serve := func(conn net.Conn) error {
		defer conn.Close()

		// Over a stream, a length of two bytes precedes each message. Source: RFC 1035 §4.2.2.
		for {
			var length [2]byte
			if _, err := io.ReadFull(conn, length[:]); err != nil {
				return err
			}

			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(conn, query); err != nil {
				return err
			}

			reply, err := answer(query)
			if err != nil {
				return err
			}

			if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
				return err
			}
		}
	}

	return &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go serve(server)

			return client, nil
		},
	}
}

// loopbackServer serves HTTP on loopback and counts its connections.
func loopbackServer(t *testing.T, handler http.HandlerFunc) (port string, connections *atomic.Int32) {
	t.Helper()

	connections = new(atomic.Int32)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}

	server.Start()
	t.Cleanup(server.Close)

	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	return port, connections
}

func TestGuardDial(t *testing.T) {
	port, connections := loopbackServer(t, func(http.ResponseWriter, *http.Request) {})

	// The first answer for a rebinding name is harmless; a guard that looked the name up by itself would be content.
	var lookups atomic.Int32

	dns := resolver(t, func(host string) []string {
		switch host {
		case "inside.example.org", "listed.example.org":
			return []string{"127.0.0.1"}
		case "mapped.example.org":
			return []string{"::ffff:127.0.0.1"}
		case "metadata.example.org":
			return []string{"169.254.169.254"}
		case "both.example.org":
			return []string{"127.0.0.1", "::1"}
		case "rebinding.example.org":
			if lookups.Add(1) <= 2 { // one question for A, one for AAAA
				return []string{"203.0.113.1"}
			}

			return []string{"127.0.0.1"}
		default:
			return nil
		}
	})
	guard := endpoint.Guard{AllowHosts: mustAllow(t, "listed.example.org:"+port)}
	dial := guard.DialContext(&net.Dialer{Resolver: dns})

	if addrs, err := dns.LookupHost(t.Context(), "rebinding.example.org"); err != nil || len(addrs) != 1 || addrs[0] != "203.0.113.1" {
		t.Fatalf("the resolver answers %v, %v", addrs, err)
	}

	for host, kind := range map[string]string{
		"127.0.0.1":             "loopback",
		"[::1]":                 "loopback",
		"[::ffff:127.0.0.1]":    "loopback",
		"0.0.0.0":               "unspecified",
		"inside.example.org":    "loopback",
		"INSIDE.example.org":    "loopback",
		"inside.example.org.":   "loopback",
		"mapped.example.org":    "loopback",
		"both.example.org":      "loopback",
		"rebinding.example.org": "loopback",
		"metadata.example.org":  "of a metadata service",
		"listed.example.org.":   "loopback",
	} {
		conn, err := dial(t.Context(), "tcp", host+":"+port)
		if err == nil {
			conn.Close()
		}

		checkKind(t, host, err, kind)

		if err != nil && (strings.Contains(err.Error(), "127.0.0.1:") || strings.Contains(err.Error(), "169.254")) {
			t.Errorf("%s: the error tells the address: %v", host, err)
		}
	}

	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}

	for _, address := range []string{"listed.example.org:" + port, "LISTED.example.org:" + port} {
		conn, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("%s: got error %v", address, err)
		}

		conn.Close()
	}

	// The entry is for one port.
	_, err := dial(t.Context(), "tcp", "listed.example.org:1")
	checkKind(t, "another port of the listed host", err, "loopback")

	// An error that is not a refusal stays what it is.
	_, err = dial(t.Context(), "tcp", "absent.example.org:"+port)
	if _, ok := errors.AsType[*net.DNSError](err); !ok {
		t.Errorf("got %v for a name without addresses", err)
	}

	if _, err := endpoint.Guard.DialContext(endpoint.Guard{}, nil)(t.Context(), "tcp", "127.0.0.1:"+port); err == nil {
		t.Error("a guard around no dialer lets loopback pass")
	}
}

// A listed host may not send its caller inside.
func TestGuardFollowsRedirects(t *testing.T) {
	inside, connections := loopbackServer(t, func(http.ResponseWriter, *http.Request) {})
	listed, _ := loopbackServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://inside.example.org:"+inside+"/", http.StatusTemporaryRedirect)
	})

	guard := endpoint.Guard{AllowHosts: mustAllow(t, "listed.example.org:"+listed)}
	transport := &http.Transport{DialContext: guard.DialContext(&net.Dialer{
		Resolver: resolver(t, func(string) []string { return []string{"127.0.0.1"} }),
	})}
	t.Cleanup(transport.CloseIdleConnections)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://listed.example.org:"+listed+"/", nil)
	if err != nil {
		t.Fatal(err)
	}

	response, err := (&http.Client{Transport: transport}).Do(request)
	if err == nil {
		response.Body.Close()
	}

	checkKind(t, "the redirect", err, "loopback")

	if refusal, ok := errors.AsType[*endpoint.AddressError](err); ok && refusal.Host != "inside.example.org" {
		t.Errorf("got the host %q", refusal.Host)
	}

	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// The guard comes first; the dialer's own control still decides what the guard lets pass.
func TestGuardKeepsTheDialersControl(t *testing.T) {
	errOwn := errors.New("own control")

	var calls atomic.Int32

	own := func(string, string, syscall.RawConn) error {
		calls.Add(1)

		return errOwn
	}

	for name, dialer := range map[string]*net.Dialer{
		"Control": {Control: own},
		"ControlContext": {ControlContext: func(_ context.Context, network, address string, c syscall.RawConn) error {
			return own(network, address, c)
		}},
	} {
		calls.Store(0)

		dial := endpoint.Guard{}.DialContext(dialer)

		_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
		checkKind(t, name, err, "loopback")

		if calls.Load() != 0 {
			t.Errorf("%s ran for a refused address", name)
		}

		// No packet leaves: the control comes before the connection.
		if _, err := dial(t.Context(), "tcp", "203.0.113.1:1"); !errors.Is(err, errOwn) || calls.Load() != 1 {
			t.Errorf("%s: got %v after %d calls", name, err, calls.Load())
		}
	}
}

func mustCIDRs(t *testing.T, list string) endpoint.CIDRs {
	t.Helper()

	var c endpoint.CIDRs
	if err := c.Set(list); err != nil {
		t.Fatal(err)
	}

	return c
}

func TestCIDRsIsAFlag(t *testing.T) {
	c := mustCIDRs(t, "10.0.0.0/8,192.0.2.1/32")

	if err := c.Set(""); err != nil {
		t.Error(err)
	}

	if err := c.Set("fd00::/8"); err != nil {
		t.Error(err)
	}

	const want = "10.0.0.0/8,192.0.2.1/32,fd00::/8"

	for _, list := range []string{"10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "fd00::1/8", "a", "10.0.0.0/8,", " 10.0.0.0/8", "fe80::1%eth0/64"} {
		refused(t, c.Set(list), endpoint.ReasonMalformed)
	}

	if c.String() != want {
		t.Errorf("got %s, want %s", c.String(), want)
	}
}
