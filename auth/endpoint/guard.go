package endpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// AddressError is the refusal to connect to an address. Its text names the kind of address and the host that was asked
// for, not the address: a tenant who chooses the host must not learn what it resolves to in the cluster's DNS.
type AddressError struct {
	// Host is the host that was asked for; empty where only the address is known.
	Host string
	// Address is what the host resolved to, for logs. It is the zero Addr when there was no IP address to judge.
	Address netip.Addr
	// Kind is why the address is refused, such as "loopback".
	Kind string
}

// Error says what was refused and which flag decides it.
func (e *AddressError) Error() string {
	subject := "the address"
	if e.Host != "" {
		subject = "the address of " + quote(e.Host)
	}
	return "connection refused: " + subject + " is " + e.Kind +
		"; name a host that is reachable from outside, or have the administrator list it as host:port in --allowed-endpoint-hosts"
}

// Guard keeps connections to hosts chosen by tenants out of the cluster's own network. It judges the very address that is
// about to be connected to, after name resolution and for each attempt, so that a name cannot resolve to one address when it
// is checked and to another when it is used (DNS rebinding). Redirects pass it as well, since each is dialled.
//
// Refused are unspecified, loopback, link-local, multicast and broadcast addresses, the clouds' metadata services and
// DenyCIDRs, by default the private ranges, and each of these inside an IPv6 address that embeds an IPv4 one. Two ways lead past the guard:
//
//   - A host:port of AllowHosts may have any address.
//   - Registries, buckets and security token services in the clouds' tables may, at port 443, have addresses in DenyCIDRs: private
//     links give them such addresses, and no tenant decides what their names resolve to. Interface endpoints of AWS
//     (….vpce.amazonaws.com) are no exception, because anyone can own one and choose its address. All other refusals apply to the
//     clouds' hosts as well.
//
// A guard sees where the connection goes, not what is said on it: behind an HTTP proxy it judges the proxy's address, and
// the proxy has to judge the target's. A proxy that a tenant names is a host like any other: with a private address, it must be in
// AllowHosts. The administrator's own proxy is never dialled through a guard (see auth/transport).
type Guard struct {
	// DenyCIDRs are further ranges that are refused, the value of --deny-cidrs; the zero value is [PrivateCIDRs].
	DenyCIDRs CIDRs
	// AllowHosts are host:port pairs, as dialled, that may resolve to anything: the value of --allowed-endpoint-hosts.
	AllowHosts Allowed
}

// DialContext returns a dial function for http.Transport.DialContext that dials with a copy of the dialer and refuses with
// an [*AddressError]. A nil dialer is the zero one; controls that it already has run after the guard.
func (g Guard) DialContext(dialer *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	if dialer == nil {
		dialer = &net.Dialer{}
	}
	plain, tenants, clouds := *dialer, guarded(*dialer, g.DenyCIDRs), guarded(*dialer, CIDRs{given: true})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(address) // what cannot be split is not resolved either
		way, name := &tenants, address
		if isCloudHost(address) {
			// Without the dot, a Service of the cluster could be found under the name, through the resolver's search domains.
			way, name = &clouds, host+".:"+port
		}
		if g.AllowHosts.Contains(address) {
			way = &plain
		}
		conn, err := way.DialContext(ctx, network, name)
		// net wraps the refusal in an error whose text holds the address.
		if refused, ok := errors.AsType[*AddressError](err); ok {
			return nil, &AddressError{Host: host, Address: refused.Address, Kind: refused.Kind}
		}
		return conn, err
	}
}

// guarded is the dialer with a control before its own, which refuses with an [*AddressError].
func guarded(dialer net.Dialer, deny CIDRs) net.Dialer {
	own, plain := dialer.ControlContext, dialer.Control
	dialer.Control = nil
	dialer.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if err := check(network, address, &deny); err != nil {
			return err
		}
		switch {
		case own != nil:
			return own(ctx, network, address, c)
		case plain != nil:
			return plain(network, address, c)
		default:
			return nil
		}
	}
	return dialer
}

// check refuses what is not the address of a TCP port, and the addresses that a guard refuses.
func check(network, address string, deny *CIDRs) error {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return &AddressError{Kind: "not of TCP"}
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &AddressError{Kind: "not an IP address"}
	}
	if kind := refusedAs(ap.Addr(), deny); kind != "" {
		return &AddressError{Address: ap.Addr(), Kind: kind}
	}
	return nil
}

// refusedAs is why an address is refused, or empty.
func refusedAs(addr netip.Addr, deny *CIDRs) string {
	if kind := addressKind(addr); kind != "" {
		return kind
	}
	if deny.Contains(addr) {
		return "in --deny-cidrs"
	}
	// A network that translates these addresses connects to the IPv4 address inside.
	if inner, ok := embeddedIPv4(addr); ok {
		if kind := refusedAs(inner, deny); kind != "" {
			return kind + ", inside an IPv6 address"
		}
	}
	return ""
}

// addressKind is why an address is refused everywhere, or empty.
func addressKind(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	switch {
	case !addr.IsValid(), addr.IsUnspecified():
		return "unspecified"
	case addr.IsLoopback():
		return "loopback"
	case isMetadata(addr):
		return "of a metadata service"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsMulticast():
		return "multicast"
	}
	// Of the special-purpose registry (RFC 6890), what is never another host: this network, broadcast, IPv6 site-local.
	for _, cidr := range [...]string{"0.0.0.0/8", "255.255.255.255/32", "fec0::/10"} {
		if netip.MustParsePrefix(cidr).Contains(addr) {
			return "of this network only"
		}
	}
	return ""
}

// isMetadata reports whether a cloud answers at the address with credentials or settings of the machine. Sources: EC2 and
// EKS user guides (IMDS, Pod Identity: 169.254/16 and fd00:ec2::/32), Google Compute Engine's "About VM metadata"
// (fd20:ce::254), Azure's "What is IP address 168.63.129.16?", Alibaba Cloud ECS "Instance metadata" (100.100.100.200).
func isMetadata(addr netip.Addr) bool {
	for _, cidr := range [...]string{
		"169.254.169.0/24", "169.254.170.0/24", "fd00:ec2::/32", "fd20:ce::254/128", "168.63.129.16/32", "100.100.100.200/32",
	} {
		if netip.MustParsePrefix(cidr).Contains(addr) {
			return true
		}
	}
	return false
}

// embeddedIPv4 is the IPv4 address inside an IPv6 address that names one: IPv4-compatible (RFC 4291 §2.5.5.1), IPv4-translated
// (RFC 2765 §2.1), NAT64 (RFC 6052, and RFC 8215's local prefix in its /96 form), 6to4 (RFC 3056), ISATAP (RFC 5214 §6.1) and
// Teredo, whose client stands inverted (RFC 4380 §4). The mapped form is not among them: it is the IPv4 address itself.
func embeddedIPv4(addr netip.Addr) (netip.Addr, bool) {
	if addr = addr.Unmap().WithZone(""); !addr.Is6() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case binary.BigEndian.Uint64(b[:8]) == 0 && binary.BigEndian.Uint32(b[8:12]) == 0,
		netip.MustParsePrefix("::ffff:0:0:0/96").Contains(addr),
		netip.MustParsePrefix("64:ff9b::/96").Contains(addr),
		netip.MustParsePrefix("64:ff9b:1::/48").Contains(addr):
		return at(12), true
	case netip.MustParsePrefix("2002::/16").Contains(addr):
		return at(2), true
	case netip.MustParsePrefix("2001::/32").Contains(addr):
		var client [4]byte
		for i := range client {
			client[i] = ^b[12+i]
		}
		return netip.AddrFrom4(client), true
	case b[10] == 0x5e && b[11] == 0xfe && (b[8] == 0 || b[8] == 2) && b[9] == 0:
		return at(12), true
	default:
		return netip.Addr{}, false
	}
}
