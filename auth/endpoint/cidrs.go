package endpoint

import (
	"net/netip"
	"slices"
	"strings"
)

const whatCIDR = "denied CIDR"

// CIDRs are the address ranges that hosts chosen by tenants must not resolve to, the value of --deny-cidrs. The zero value is the
// default, [PrivateCIDRs]; setting it replaces the default, even with no range at all. It is a flag's value (flag.Value,
// pflag.Value).
type CIDRs struct {
	ranges []netip.Prefix
	// given: ranges stands in place of the default.
	given bool
}

// PrivateCIDRs is the default of --deny-cidrs: the ranges in which clusters have their pods, services and nodes. It denies the same
// as the zero CIDRs. Sources: RFC 1918 (10/8, 172.16/12, 192.168/16), RFC 6598 (100.64/10, shared by carriers and clusters) and RFC
// 4193 (fc00::/7). Two more are reserved for other ends, and given to pods where those run out: RFC 2544 (198.18/15; Amazon EKS best
// practices, "Custom Networking") and RFC 1112 §4 (240/4; Google Cloud VPC, "Valid IPv4 ranges").
func PrivateCIDRs() CIDRs {
	return CIDRs{ranges: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"),
		netip.MustParsePrefix("198.18.0.0/15"),
		netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("fc00::/7"),
	}}
}

// ParseCIDRs returns the set of the given ranges, in place of the default; without any, it denies nothing. Errors are [*Error].
func ParseCIDRs(ranges ...string) (CIDRs, error) {
	c := CIDRs{given: true}
	for _, r := range ranges {
		p, err := parseCIDR(r)
		if err != nil {
			return CIDRs{}, err
		}
		c.ranges = append(c.ranges, p)
	}
	return c, nil
}

// Contains reports whether the address is in one of the ranges. IPv4 addresses and ranges equal their IPv6-mapped forms, and zones
// are ignored.
func (c *CIDRs) Contains(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(c.list(), func(p netip.Prefix) bool {
		return p.Contains(addr) || addr.Is4() && p.Contains(netip.AddrFrom16(addr.As16()))
	})
}

// String is the ranges separated by commas, as Set reads them.
func (c *CIDRs) String() string {
	if c == nil {
		return ""
	}
	list := make([]string, len(c.list()))
	for i, p := range c.list() {
		list[i] = p.String()
	}
	return strings.Join(list, ",")
}

// Set adds ranges separated by commas, so that the flag may be repeated; the first call replaces the default. Errors are [*Error]. A
// range with host bits, such as 10.1.2.3/8, is refused, because it may have been meant as a single address.
func (c *CIDRs) Set(list string) error {
	var entries []string
	if list != "" {
		entries = strings.Split(list, ",")
	}
	more, err := ParseCIDRs(entries...)
	if err != nil {
		return err
	}
	if c.given {
		more.ranges = slices.Concat(c.ranges, more.ranges)
	}
	*c = more
	return nil
}

// Type is the value's name in a command's help.
func (c *CIDRs) Type() string { return "cidr,..." }

func (c *CIDRs) list() []netip.Prefix {
	if c.given {
		return c.ranges
	}
	return PrivateCIDRs().ranges
}

func parseCIDR(entry string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(entry)
	switch {
	case err != nil:
		return netip.Prefix{}, &Error{
			What: whatCIDR, Reason: ReasonMalformed,
			Detail: quote(entry) + " is not a range of addresses",
			Fix:    "write <address>/<bits>, such as 10.0.0.0/8",
		}
	case p != p.Masked():
		return netip.Prefix{}, &Error{
			What: whatCIDR, Reason: ReasonMalformed,
			Detail: quote(entry) + " has address bits beyond its prefix",
			Fix:    "write " + p.Masked().String() + ", or " + netip.PrefixFrom(p.Addr(), p.Addr().BitLen()).String() + " for the one address",
		}
	default:
		return p, nil
	}
}
