package content

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Hosts are artifact servers. The zero value has none.
type Hosts struct {
	known map[string]bool // "host:port", as address returns it
}

// ParseHosts parses a list of servers, each "host" or "host:port". Without a port, the server's
// ports are 80 for http and 443 for https.
func ParseHosts(list []string) (Hosts, error) {
	hosts := Hosts{known: map[string]bool{}}
	for _, entry := range list {
		u, err := url.Parse("http://" + entry)
		if err != nil || entry == "" || u.Host != entry || u.Hostname() == "" {
			return Hosts{}, fmt.Errorf("%q is no host or host:port", entry)
		}
		if u.Port() != "" {
			hosts.known[address(u)] = true
			continue
		}
		for _, scheme := range []string{"http", "https"} {
			u.Scheme = scheme
			hosts.known[address(u)] = true
		}
	}
	return hosts, nil
}

// has reports whether the URL's server is one of the hosts.
func (h Hosts) has(u *url.URL) bool { return h.known[address(u)] }

// address returns "host:port" in lower case, without a dot at the end of the host's name.
func address(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port)
}
