package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
)

// Connection carries the requests to one host and to where it redirects. It belongs to one reconciliation, but draws on
// connections that are kept for all. [Access.Connect] makes it; the caller closes it.
type Connection struct {
	// host is the host[:port] that the object names.
	host string
	// bound: the credential was issued for this host and goes nowhere else.
	bound bool
	pool  *transport.Pool
	// proxy is the tenant's; nil for none.
	proxy *url.URL
	// certs are the tenant's; nil for none.
	certs *certificates

	mu      sync.Mutex // guards the fields below; never held during I/O
	made    map[way]*http.Transport
	refused *endpoint.AddressError // the last
}

// way is what a tenant's certificates make a transport of their own for.
type way struct {
	base *http.Transport
	home bool // to the host itself
}

// DetourError is a request that would have carried a credential elsewhere than to the host that it is for.
type DetourError struct {
	// Host is the host[:port] that the credential is for.
	Host string
}

func (e *DetourError) Error() string {
	return e.Host + " asks for the credential to be sent to another host, or without TLS, which is refused"
}

// RoundTrip implements http.RoundTripper. Its error may be a [*DetourError].
func (c *Connection) RoundTrip(req *http.Request) (*http.Response, error) {
	home := sameHost(req.URL, c.host)
	if c.bound && (!home || req.URL.Scheme != "https") && req.Header.Get("Authorization") != "" {
		return nil, &DetourError{c.host}
	}
	// Each target is judged by itself: a redirect may leave the administrator's proxy.
	base := c.pool.Host(req.URL)
	if c.proxy != nil {
		base = c.pool.Proxy(c.proxy)
	}
	if c.certs != nil {
		var err error
		if base, err = c.own(way{base, home}); err != nil {
			return nil, err
		}
	}
	resp, err := base.RoundTrip(req)
	if refused, ok := errors.AsType[*endpoint.AddressError](err); ok {
		c.mu.Lock()
		c.refused = refused
		c.mu.Unlock()
	}
	return resp, err
}

// Explain gives the refusal to dial in place of err: clients go on to try without TLS, or once more, and then complain of that.
func (c *Connection) Explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.refused != nil {
		return fmt.Errorf("%s: %w", c.host, c.refused)
	}
	return err
}

// own is base with the tenant's certificates. The host is checked against the tenant's authorities alone and gets the
// client certificate; storage that it redirects to may have a certificate of a public authority and gets none.
func (c *Connection) own(w way) (*http.Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.made[w]; t != nil {
		return t, nil
	}
	t := w.base.Clone()
	if len(c.certs.authorities) > 0 {
		authorities := x509.NewCertPool()
		switch known := t.TLSClientConfig.RootCAs; {
		case w.home:
		case known != nil:
			authorities = known.Clone()
		default:
			var err error
			if authorities, err = x509.SystemCertPool(); err != nil {
				return nil, err
			}
		}
		authorities.AppendCertsFromPEM(c.certs.authorities)
		t.TLSClientConfig.RootCAs = authorities
	}
	if w.home {
		t.TLSClientConfig.Certificates = c.certs.client
	}
	if c.made == nil {
		c.made = map[way]*http.Transport{}
	}
	c.made[w] = t
	return t, nil
}

// Close closes the connections that are not kept.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.made {
		t.CloseIdleConnections()
	}
}

// sameHost compares host and port, 443 and 80 standing for https and http.
func sameHost(u *url.URL, hostport string) bool {
	normal := func(v *url.URL) string {
		port := v.Port()
		switch {
		case port != "":
		case u.Scheme == "http":
			port = "80"
		default:
			port = "443"
		}
		return strings.ToLower(v.Hostname()) + " " + port
	}
	return normal(u) == normal(&url.URL{Host: hostport})
}
