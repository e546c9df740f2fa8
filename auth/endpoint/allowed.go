package endpoint

import (
	"slices"
	"strings"
)

const whatAllowed = "allowed host"

// Allowed is the list of --allowed-endpoint-hosts. The hosts in it belong to no cloud. Tenants may
// still name them, because an administrator trusts them. Each entry is an exact host[:port] without
// wildcards; the default port is 443. The zero value is the empty list, the default. Allowed
// implements flag.Value and pflag.Value.
type Allowed struct {
	// authorities are host:port in normal form, sorted and without duplicates.
	authorities []string
}

// ParseAllowed returns the list of the given entries. Errors are [*Error] and say what is wrong
// with an entry.
func ParseAllowed(entries ...string) (Allowed, error) {
	var none Allowed
	return none.With(entries...)
}

// With returns a list with the receiver's entries and the given entries. The receiver is unchanged.
func (a *Allowed) With(entries ...string) (Allowed, error) {
	list := slices.Clone(a.authorities)
	for _, e := range entries {
		authority, err := parseAuthority(e)
		if err != nil {
			return Allowed{}, err
		}
		list = append(list, authority)
	}
	slices.Sort(list)
	return Allowed{authorities: slices.Compact(list)}, nil
}

// Contains reports whether host[:port] is in the list; the default port is 443. A malformed host is
// in no list.
func (a *Allowed) Contains(hostport string) bool {
	if len(a.authorities) == 0 {
		return false
	}
	authority, err := parseAuthority(hostport)
	if err != nil {
		return false
	}
	_, found := slices.BinarySearch(a.authorities, authority)
	return found
}

// String returns the entries separated by commas, as Set reads them.
func (a *Allowed) String() string {
	if a == nil {
		return ""
	}
	return strings.Join(a.authorities, ",")
}

// Set adds entries, separated by commas, to the list, so that the flag may be repeated.
func (a *Allowed) Set(list string) error {
	if list == "" {
		return nil
	}
	next, err := a.With(strings.Split(list, ",")...)
	if err != nil {
		return err
	}
	*a = next
	return nil
}

// Type returns the name of the flag's value for a command's help.
func (a *Allowed) Type() string { return "host[:port],..." }

// parseAuthority returns an entry as host:port in normal form.
func parseAuthority(entry string) (string, error) {
	if strings.ContainsAny(entry, "/@") {
		return "", &Error{
			What: whatAllowed, Reason: ReasonMalformed,
			Detail: "an entry has more than a host and a port",
			Fix:    "write host[:port] alone, without scheme, user and path",
		}
	}
	if strings.Contains(entry, "*") {
		return "", &Error{
			What: whatAllowed, Reason: ReasonMalformed,
			Detail: "an entry has a wildcard",
			Fix:    "write each host by its full name",
		}
	}
	host, port, err := parseHostPort(whatAllowed, entry)
	if err != nil {
		return "", err
	}
	return location{host: host, port: port}.authority(), nil
}
