package endpoint

import (
	"net/netip"
	"strings"
)

const whatCIDR = "denied CIDR"

// CIDRs is a set of address ranges, the value of --deny-cidrs. The zero value holds no address. It is a flag's value
// (flag.Value, pflag.Value).
type CIDRs []netip.Prefix

// Contains reports whether the address is in one of the ranges. An IPv4 address and its IPv6-mapped form are the same
// address, in the ranges as well, and a zone does not matter.
func (c *CIDRs) Contains(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")

	for _, p := range *c {
		if p.Contains(addr) || addr.Is4() && p.Contains(netip.AddrFrom16(addr.As16())) {
			return true
		}
	}

	return false
}

// String is the ranges separated by commas, as Set reads them.
func (c *CIDRs) String() string {
	if c == nil {
		return ""
	}

	list := make([]string, len(*c))
	for i, p := range *c {
		list[i] = p.String()
	}

	return strings.Join(list, ",")
}

// Set adds ranges that are separated by commas, so that the flag may be repeated. Errors are [*Error]. A range with host
// bits, such as 10.1.2.3/8, is refused: it is as likely to be meant as one address as as a range.
func (c *CIDRs) Set(list string) error {
	if list == "" {
		return nil
	}

	next := append(CIDRs(nil), *c...)

	for entry := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(entry)

		switch {
		case err != nil:
			return &Error{
				What: whatCIDR, Reason: ReasonMalformed,
				Detail: quote(entry) + " is not a range of addresses",
				Fix:    "write <address>/<bits>, such as 10.0.0.0/8",
			}
		case p != p.Masked():
			return &Error{
				What: whatCIDR, Reason: ReasonMalformed,
				Detail: quote(entry) + " has address bits beyond its prefix",
				Fix:    "write " + p.Masked().String() + ", or " + netip.PrefixFrom(p.Addr(), p.Addr().BitLen()).String() + " for the one address",
			}
		}

		next = append(next, p)
	}

	*c = next

	return nil
}

// Type is the value's name in a command's help.
func (c *CIDRs) Type() string { return "cidr,…" }
