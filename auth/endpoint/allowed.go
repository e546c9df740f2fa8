package endpoint

import (
	"slices"
	"strings"
)

const whatAllowed = "allowed host"

// Allowed is the list of --allowed-endpoint-hosts: hosts outside the clouds' tables that an administrator trusts to be
// named by tenants. Each entry is an exact host[:port]; a port that is left out is 443, and there are no wildcards. The
// zero value is the default and holds nothing. It is a flag's value (flag.Value, pflag.Value).
type Allowed struct {
	// authorities are host:port in normal form, sorted, each once.
	authorities []string
}

// ParseAllowed returns the list of the entries. Errors are [*Error] and say what is wrong with an entry.
func ParseAllowed(entries ...string) (Allowed, error) {
	var none Allowed
	return none.With(entries...)
}

// With returns a list that holds the entries in addition to its own; the receiver is unchanged.
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

// Contains reports whether host[:port] is in the list; a port that is left out is 443. A malformed host is in no list.
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

// String is the list separated by commas, as Set reads it.
func (a *Allowed) String() string {
	if a == nil {
		return ""
	}
	return strings.Join(a.authorities, ",")
}

// Set adds entries that are separated by commas, so that the flag may be repeated.
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

// Type is the value's name in a command's help.
func (a *Allowed) Type() string { return "host[:port],..." }

// parseAuthority returns host:port in normal form.
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
