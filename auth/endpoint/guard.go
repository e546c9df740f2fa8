package endpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// AddressError is the refusal to connect to an address. Its text names the host and the kind of its
// address, but not the address. A tenant who chooses the host must not learn its address in the
// cluster's DNS.
type AddressError struct {
	// Host is the host that was asked for; empty if only the address is known.
	Host string
	// Address is the address of the host, for logs. It is the zero Addr if there was no IP address
	// to check.
	Address netip.Addr
	// Kind is the kind of address that is refused, such as "loopback".
	Kind string
}

// Error returns a text that says what is not allowed, and which flag decides this.
func (e *AddressError) Error() string {
	return e.Detail() + "; " + e.Fix()
}

// Detail returns one clause for error messages. It says which address is not allowed, and why.
func (e *AddressError) Detail() string {
	subject := "the address"
	if e.Host != "" {
		subject = "the address of " + quote(e.Host)
	}
	return "address not allowed: " + subject + " is " + e.Kind
}

// Fix returns one clause for error messages. It says how the user can solve the problem.
func (e *AddressError) Fix() string {
	return "name a host or proxy that is reachable from outside, or have the administrator list it as host:port in " +
		"--allowed-endpoint-hosts (identity.allowedEndpointHosts of the Helm chart)"
}

// Guard refuses connections into the cluster's own network if a tenant chose the host. It checks
// the resolved IP address, not the name, before each attempt to connect. So a name cannot resolve
// to one address for the check and to another for the connection (DNS rebinding). A guard also
// checks redirects, because each redirect is dialled.
//
// A guard refuses these addresses:
//
//   - unspecified, loopback, link-local, site-local, multicast and broadcast addresses
//   - the addresses of the clouds' metadata services
//   - addresses in DenyCIDRs, which are the private ranges by default
//   - IPv6 addresses that contain a refused IPv4 address
//
// There are two exceptions:
//
//   - A host:port of AllowHosts may have any address.
//   - A cloud's own registries, buckets, key services and security token services ([ProviderOf])
//     may, at port 443, have addresses in DenyCIDRs. Private links give these hosts such
//     addresses, and no tenant decides how the names resolve. All other refusals apply to these
//     hosts too. The exception does not include AWS's interface endpoints
//     (….vpce.amazonaws.com). Anyone can own an interface endpoint and choose its address.
//
// A guard's dial function sees only the address of the connection. With an HTTP proxy this is the
// proxy's address. [Guard.CheckTarget] checks the target without name resolution. The proxy must
// check the address that the target's name resolves to.
//
// A proxy that a tenant names is treated like any other host. If its address is refused, the proxy
// must be in AllowHosts. The administrator's own proxy is never dialled through a guard (see
// auth/transport).
type Guard struct {
	// DenyCIDRs has the value of --deny-cidrs. The guard refuses these ranges in addition to the
	// addresses that every guard refuses. The zero value means [PrivateCIDRs].
	DenyCIDRs CIDRs
	// AllowHosts are host:port pairs, as dialled, that may have any address: the value of
	// --allowed-endpoint-hosts.
	AllowHosts Allowed
}

// DialContext returns a dial function for http.Transport.DialContext. The function dials with a
// copy of the dialer; its refusals are [*AddressError]. A nil dialer means the zero net.Dialer. The
// dialer's own controls run after the guard.
func (g Guard) DialContext(dialer *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	if dialer == nil {
		dialer = &net.Dialer{}
	}
	plain, tenants, clouds := *dialer, guarded(*dialer, g.DenyCIDRs), guarded(*dialer, CIDRs{given: true})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		// Ignore the error: if the address cannot be split, the dialer fails too.
		host, port, _ := net.SplitHostPort(address)
		way, name := &tenants, address
		if isCloudHost(address) {
			// Without the dot at the end, the resolver could append a search domain. The name could
			// then be that of a Service of the cluster.
			way, name = &clouds, host+".:"+port
		}
		if g.AllowHosts.Contains(address) {
			way = &plain
		}
		conn, err := way.DialContext(ctx, network, name)
		// Return only the refusal. net wraps it in an error that shows the address, which a tenant
		// must not learn.
		if refused, ok := errors.AsType[*AddressError](err); ok {
			return nil, &AddressError{Host: host, Address: refused.Address, Kind: refused.Kind}
		}
		return conn, err
	}
}

// CheckTarget refuses a target (host:port) that a proxy must not be asked to reach. It resolves no
// names. It accepts every target in AllowHosts. It refuses these others:
//
//   - targets that are not host:port
//   - empty names, and names with spaces, percent signs or characters that are not printable ASCII
//   - IP addresses that the guard refuses
//   - names of metadata services and of the machine itself
//   - IP addresses in an unusual form, such as 0x7f.1, because programs read them as different
//     addresses
//
// The error is an [*AddressError].
func (g Guard) CheckTarget(hostport string) error {
	if g.AllowHosts.Contains(hostport) {
		return nil
	}
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return &AddressError{Host: hostport, Kind: "not a host and a port"}
	}
	name := strings.TrimSuffix(lowerASCII(host), ".")
	if addr, err := netip.ParseAddr(name); err == nil {
		if kind := refusedAs(addr, &g.DenyCIDRs); kind != "" {
			return &AddressError{Host: host, Address: addr, Kind: kind}
		}
		return nil
	}
	if kind := nameKind(name); kind != "" {
		return &AddressError{Host: host, Kind: kind}
	}
	return nil
}

// nameKind returns the Kind of the [AddressError] for a name in lower case, without resolving the
// name. It returns "" if the name alone is no reason to refuse.
//
// Sources: RFC 6761 §6.3 (localhost); /etc/hosts of Debian, Red Hat, SUSE and Kubernetes'
// containers (localhost's other names); Google Compute Engine, "About VM metadata"; EC2 user guide,
// "Instance metadata" (instance-data); WHATWG URL, "ends in a number checker".
func nameKind(name string) string {
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case !all(name, func(c byte) bool { return ' ' < c && c < 0x7f && c != '%' }):
		// Some programs convert fullwidth digits and similar characters into ASCII. So the name can
		// become an address.
		return "written with characters other than those of DNS"
	case last == "" || all(last, func(c byte) bool { return '0' <= c && c <= '9' }) || strings.HasPrefix(last, "0x"):
		return "a number that programs read in different ways"
	}
	switch last { // no top-level domain has one of these names
	case "localhost", "localhost4", "localhost6", "localdomain", "localdomain4", "localdomain6",
		"ip6-localhost", "ip6-loopback", "ipv6-localhost", "ipv6-loopback":
		return "loopback"
	}
	switch name {
	case "metadata", "metadata.goog", "metadata.google.internal", "instance-data", "instance-data.ec2.internal":
		return "of a metadata service"
	}
	return ""
}

// guarded returns a copy of the dialer that passes each address to [check] before it connects. The
// dialer's own control runs after this check.
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

// check returns an [*AddressError] if the network is not TCP, or if a guard with the given
// DenyCIDRs refuses the address.
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

// refusedAs returns the Kind of the [AddressError] for an address; empty if the address is allowed.
func refusedAs(addr netip.Addr, deny *CIDRs) string {
	if kind := addressKind(addr); kind != "" {
		return kind
	}
	if deny.Contains(addr) {
		return "in --deny-cidrs"
	}
	// A network may translate an IPv6 address and connect to the IPv4 address inside. So check this
	// IPv4 address too.
	if inner, ok := embeddedIPv4(addr); ok {
		if kind := refusedAs(inner, deny); kind != "" {
			return kind + ", inside an IPv6 address"
		}
	}
	return ""
}

// addressKind returns the Kind of an address that every guard refuses, whatever its settings; empty
// for other addresses.
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
	// Special-purpose addresses (RFC 6890) that never belong to another host: this network,
	// broadcast, IPv6 site-local.
	if isIn(addr, "0.0.0.0/8", "255.255.255.255/32", "fec0::/10") {
		return "of this network only"
	}
	return ""
}

// isIn reports whether the address is in one of the ranges.
func isIn(addr netip.Addr, ranges ...string) bool {
	return slices.ContainsFunc(ranges, func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(addr) })
}

// isMetadata reports whether the address is that of a cloud's metadata or credential service.
// Sources:
//
//   - EC2 and EKS user guides: IMDS and Pod Identity (169.254.169/24, 169.254.170/24,
//     fd00:ec2::/32)
//   - Google Compute Engine, "About VM metadata" (fd20:ce::254)
//   - Azure, "What is IP address 168.63.129.16?"
//   - Alibaba Cloud ECS, "Instance metadata" (100.100.100.200)
func isMetadata(addr netip.Addr) bool {
	return isIn(addr, "169.254.169.0/24", "169.254.170.0/24", "fd00:ec2::/32", "fd20:ce::254/128", "168.63.129.16/32", "100.100.100.200/32")
}

// embeddedIPv4 returns the IPv4 address inside an IPv6 address, if the IPv6 address has one of
// these forms:
//
//   - IPv4-compatible (RFC 4291 §2.5.5.1)
//   - IPv4-translated (RFC 2765 §2.1)
//   - NAT64 (RFC 6052, and RFC 8215's local prefix in its /96 form)
//   - 6to4 (RFC 3056)
//   - ISATAP (RFC 5214 §6.1)
//   - Teredo, with the client's address inverted (RFC 4380 §4)
//
// The IPv4-mapped form does not count, because it is the IPv4 address itself.
func embeddedIPv4(addr netip.Addr) (netip.Addr, bool) {
	if addr = addr.Unmap().WithZone(""); !addr.Is6() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case binary.BigEndian.Uint64(b[:8]) == 0 && binary.BigEndian.Uint32(b[8:12]) == 0,
		isIn(addr, "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"):
		return at(12), true
	case isIn(addr, "2002::/16"):
		return at(2), true
	case isIn(addr, "2001::/32"):
		var client [4]byte
		binary.BigEndian.PutUint32(client[:], ^binary.BigEndian.Uint32(b[12:]))
		return netip.AddrFrom4(client), true
	case b[10] == 0x5e && b[11] == 0xfe && (b[8] == 0 || b[8] == 2) && b[9] == 0:
		return at(12), true
	default:
		return netip.Addr{}, false
	}
}
