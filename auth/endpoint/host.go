package endpoint

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const (
	// maxInput bounds a URL or image repository, in bytes. Source: the lowest limit that common
	// servers have for a URL.
	maxInput = 2048
	// maxHost and maxLabel bound a DNS name and its labels, in bytes. Source: RFC 1035 §2.3.4.
	maxHost, maxLabel = 253, 63
)

// httpsPort is the default port of every scheme of this package.
const httpsPort = "443"

const (
	schemeHTTPS = "https"
	schemeOCI   = "oci"
	// whatRepository is the [Error].What of errors about image repositories.
	whatRepository = "image repository"
)

// location has the parts of a well-formed URL. Its host is not yet compared with the clouds' hosts.
type location struct {
	// host is in lower case: a DNS name, or an IP address without brackets.
	host string
	// port is empty, or a number from 1 to 65535 without leading zeros.
	port string
	// path begins with "/" or is empty.
	path string
}

// String returns host[:port], without the default port.
func (l location) String() string {
	return strings.TrimSuffix(l.authority(), ":"+httpsPort)
}

// authority returns host:port, always with a port.
func (l location) authority() string { return net.JoinHostPort(l.host, cmp.Or(l.port, httpsPort)) }

// ownPort returns the port, or empty for the default port.
func (l location) ownPort() string {
	if l.port == httpsPort {
		return ""
	}
	return l.port
}

// url returns https://host[:port].
func (l location) url() string { return schemeHTTPS + "://" + l.String() }

// parseRepository parses an image repository, host[:port][/path] or oci://host[:port][/path].
func parseRepository(repository string) (location, error) {
	return parseOptional(whatRepository, schemeOCI, repository)
}

// parseHost parses host[:port] or https://host[:port].
func parseHost(what, endpoint string) (location, error) {
	loc, err := parseOptional(what, schemeHTTPS, endpoint)
	return root(what, loc, err)
}

// parseRoot parses https://host[:port].
func parseRoot(what, rawURL string) (location, error) {
	loc, err := parseLocation(what, schemeHTTPS, rawURL)
	return root(what, loc, err)
}

// root takes the result of a parser. It refuses a location with a path, and returns any other
// result unchanged.
func root(what string, l location, err error) (location, error) {
	if err == nil && l.path != "" && l.path != "/" {
		return location{}, &Error{What: what, Reason: ReasonPath, Detail: "it has a path", Fix: "remove what follows the host"}
	}
	return l, err
}

// parseOptional parses a URL that has the given scheme or no scheme.
func parseOptional(what, scheme, raw string) (location, error) {
	given, _, found := strings.Cut(raw, "://")
	switch {
	case raw != "" && !found:
		raw = scheme + "://" + raw
	case found && given != scheme:
		return location{}, &Error{What: what, Reason: ReasonScheme, Detail: "its scheme is not " + scheme, Fix: "leave the scheme out"}
	}
	return parseLocation(what, scheme, raw)
}

// parseLocation parses a URL of exactly the given scheme. Its errors name the given kind of input.
//
// The characters are checked before the string is parsed, so that no two parsers can read the
// string differently. Only printable ASCII is allowed, without spaces, percent signs and
// backslashes. This excludes look-alikes of other scripts, and characters that fold into ASCII.
func parseLocation(what, scheme, raw string) (location, error) {
	refuse := func(reason Reason, detail, fix string) (location, error) {
		return location{}, &Error{What: what, Reason: reason, Detail: detail, Fix: fix}
	}
	switch {
	case raw == "":
		return refuse(ReasonEmpty, "it is empty", "write a host")
	case len(raw) > maxInput:
		return refuse(ReasonMalformed, "it is longer than "+strconv.Itoa(maxInput)+" bytes", "shorten it")
	}
	for i, c := range raw {
		if c <= ' ' || c >= 0x7f || c == '%' || c == '\\' {
			return refuse(ReasonMalformed, "the character "+quote(string(c))+" at byte "+strconv.Itoa(i)+" is not allowed",
				"write it in ASCII, without spaces, percent signs and backslashes")
		}
	}
	given, rest, ok := strings.Cut(raw, "://")
	if !ok || given != scheme {
		return refuse(ReasonScheme, "its scheme is not "+scheme+"://", "write "+scheme+"://")
	}
	if strings.ContainsAny(rest, "?#") {
		return refuse(ReasonPath, "it has a query or a fragment", "remove what follows the path")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		// The parser's error repeats the input, which may hold a password; so it is not wrapped.
		return refuse(ReasonMalformed, "it is not a URL with a host", "write a host, and a path where one belongs")
	}
	if u.User != nil {
		return refuse(ReasonCredentials, "a user or password is written into it", `remove everything up to the "@"`)
	}
	loc := location{path: u.Path}
	if loc.host, loc.port, err = parseHostPort(what, u.Host); err != nil {
		return location{}, err
	}
	return loc, nil
}

// parseHostPort parses host[:port]. The host is a DNS name, an IPv4 address or a bracketed IPv6
// address without zone.
func parseHostPort(what, s string) (host, port string, err error) {
	refuse := func(reason Reason, detail, fix string) (string, string, error) {
		return "", "", &Error{What: what, Reason: reason, Detail: detail, Fix: fix}
	}
	if s == "" {
		return refuse(ReasonEmpty, "it has no host", "write a host")
	}
	host, hasPort := s, false
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port, hasPort = s[:i], s[i+1:], true
	}
	if n, convErr := strconv.ParseUint(port, 10, 16); hasPort && (convErr != nil || n == 0 || strconv.FormatUint(n, 10) != port) {
		return refuse(ReasonPort, "its port is not a number from 1 to 65535", "write host:port, or leave the port out")
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, addrErr := netip.ParseAddr(inner)
		if !closed || addrErr != nil || addr.Zone() != "" || !addr.Is6() {
			return refuse(ReasonMalformed, "the text in brackets is not an IPv6 address without zone", "write [address]:port")
		}
		// Each address has one spelling: an IPv4-mapped IPv6 address becomes the IPv4 address.
		return addr.Unmap().String(), port, nil
	}
	host = lowerASCII(host)
	if detail := hostFault(host); detail != "" {
		return refuse(ReasonMalformed, detail, "write the host as a DNS name: letters, digits, hyphens and dots, without a dot at its end")
	}
	return host, port, nil
}

// hostFault says what is wrong with the host. It returns "" if the host is a valid DNS name in
// lower case.
func hostFault(host string) string {
	switch {
	case host == "":
		return "its host is empty"
	case len(host) > maxHost:
		return "its host is longer than " + strconv.Itoa(maxHost) + " bytes"
	case strings.HasSuffix(host, "."):
		return "its host ends in a dot"
	}
	for label := range strings.SplitSeq(host, ".") {
		switch {
		case label == "":
			return "its host has an empty label"
		case len(label) > maxLabel:
			return "a label of its host is longer than " + strconv.Itoa(maxLabel) + " bytes"
		case label[0] == '-' || label[len(label)-1] == '-':
			return "a label of its host begins or ends in a hyphen"
		case !all(label, func(c byte) bool { return isLowerOrDigit(c) || c == '-' }):
			return "its host has a character other than letters, digits, hyphens and dots"
		}
	}
	return ""
}

// lowerASCII changes only A-Z to lower case. strings.ToLower would also change the Kelvin sign to
// k.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
