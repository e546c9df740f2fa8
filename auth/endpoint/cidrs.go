package endpoint

import (
	"net/netip"
	"slices"
	"strings"
)

const whatCIDR = "denied CIDR"

// CIDRs are the ranges of --deny-cidrs. A host that a tenant chooses must not have an address in
// these ranges. The zero value is the default, [PrivateCIDRs]. The first call of Set replaces the
// default, even with an empty list. CIDRs implements flag.Value and pflag.Value.
type CIDRs struct {
	ranges []netip.Prefix
	// given is true if the ranges replace the default.
	given bool
}

// PrivateCIDRs returns the default of --deny-cidrs: the ranges that clusters use for pods, services
// and nodes. The result denies the same addresses as the zero CIDRs. Sources:
//
//   - RFC 1918: 10/8, 172.16/12 and 192.168/16
//   - RFC 6598: 100.64/10, shared by carriers and clusters
//   - RFC 4193: fc00::/7
//   - RFC 2544: 198.18/15 (Amazon EKS best practices, "Custom Networking")
//   - RFC 1112 §4: 240/4 (Google Cloud VPC, "Valid IPv4 ranges")
//
// The last two ranges are reserved for other purposes. Clusters use them for pods if private
// addresses run out.
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

// ParseCIDRs returns the set of the given ranges, without the default. An empty set denies nothing.
// Errors are [*Error].
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

// Contains reports whether the address is in one of the ranges. An IPv4 address or range is the
// same as its IPv4-mapped IPv6 form. Zones are ignored.
func (c *CIDRs) Contains(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(c.list(), func(p netip.Prefix) bool {
		return p.Contains(addr) || addr.Is4() && p.Contains(netip.AddrFrom16(addr.As16()))
	})
}

// String returns the ranges separated by commas, as Set reads them.
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

// Set adds ranges, separated by commas, to the set, so that the flag may be repeated. The first
// call replaces the default. Errors are [*Error]. Set refuses a range with host bits, such as
// 10.1.2.3/8. Its author may have meant a single address.
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

// Type returns the name of the flag's value for a command's help.
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
			Detail: quote(entry) + " has address bits after its prefix",
			Fix: "write " + p.Masked().String() + " for the range, or " + netip.PrefixFrom(p.Addr(), p.Addr().BitLen()).String() +
				" for the address",
		}
	default:
		return p, nil
	}
}
