package access

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
)

// Connection carries the requests to one host and to the hosts to which it redirects. It belongs to
// one reconciliation, but reuses connections that are kept for all reconciliations.
// [Access.Connect] makes it; the caller closes it.
type Connection struct {
	// host is the host[:port] that the object names.
	host string
	// bound: the credential was issued for this host and goes nowhere else.
	bound bool
	// insecure: the object allows plain HTTP. Never together with bound.
	insecure bool
	pool     *transport.Pool
	// proxy is the tenant's; nil for none.
	proxy *url.URL
	// certs are the tenant's; nil for none.
	certs *certificates

	mu      sync.Mutex // guards the fields below; never held during I/O
	made    map[transportKey]*http.Transport
	refused *endpoint.AddressError // the last
}

// transportKey is the key of a transport that this connection made, because a certificate of the
// tenant is used with it.
type transportKey struct {
	base   *http.Transport
	home   bool             // to the host itself
	client *tls.Certificate // of the login; nil for none
}

// As is the connection as a login: its client certificate goes with requests to the host that the
// object names, and to no other. Such a request without TLS is a [*DetourError], unless the object
// allows plain HTTP. The service's client adds the login's other parts to its requests.
func (c *Connection) As(login Login) http.RoundTripper { return session{c, login.Credential} }

// session is a connection with a credential.
type session struct {
	conn  *Connection
	shown Credential
}

// RoundTrip implements http.RoundTripper. Its error may be a [*DetourError].
func (s session) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.shown.Certificate == nil || !sameHost(req.URL, s.conn.host) {
		return s.conn.roundTrip(req, nil)
	}
	if req.URL.Scheme != "https" && !s.conn.insecure {
		return nil, &DetourError{s.conn.host}
	}
	return s.conn.roundTrip(req, s.shown.Certificate)
}

// DetourError is a request that would have carried a credential elsewhere than to the host that it
// is for.
type DetourError struct {
	// Host is the host[:port] that the credential is for.
	Host string
}

func (e *DetourError) Error() string {
	return e.Host + " asks for the credential to be sent to another host, or without TLS, which is refused"
}

// roundTrip sends a request, with a login's client certificate if there is one.
func (c *Connection) roundTrip(req *http.Request, client *tls.Certificate) (*http.Response, error) {
	home := sameHost(req.URL, c.host)
	if c.bound && (!home || req.URL.Scheme != "https") && req.Header.Get("Authorization") != "" {
		return nil, &DetourError{c.host}
	}
	// Each target is judged by itself: a redirect may leave the administrator's proxy.
	base := c.pool.Host(req.URL)
	if c.proxy != nil {
		base = c.pool.Proxy(c.proxy)
	}
	if c.certs != nil || client != nil {
		var err error
		if base, err = c.own(transportKey{base, home, client}); err != nil {
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

// Explain returns the refusal to dial in place of err, if a dial was refused. Clients retry, or try
// without TLS, and then report only the later failure.
func (c *Connection) Explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.refused != nil {
		return fmt.Errorf("%s: %w", c.host, c.refused)
	}
	return err
}

// own is the transport for a key, with the tenant's certificates.
func (c *Connection) own(key transportKey) (*http.Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.made[key]; t != nil {
		return t, nil
	}
	t := key.base.Clone()
	if c.certs != nil {
		if err := c.certs.apply(t.TLSClientConfig, key.home); err != nil {
			return nil, err
		}
	}
	if key.client != nil {
		t.TLSClientConfig.Certificates = []tls.Certificate{*key.client}
	}
	if t.Proxy != nil {
		t.DialTLSContext = c.toProxy(key.base, t.TLSClientConfig)
	}
	if c.made == nil {
		c.made = map[transportKey]*http.Transport{}
	}
	c.made[key] = t
	return t, nil
}

// proxyTimeout bounds the connection to an https proxy and its TLS handshake.
const proxyTimeout = 10 * time.Second

// toProxy returns how an https proxy is connected to: net/http would show the proxy the client
// certificate, and check the administrator's proxy by the tenant's authorities. A proxy of the
// tenant is checked by them.
func (c *Connection) toProxy(base *http.Transport, own *tls.Config) transport.DialFunc {
	dial, config := base.DialContext, base.TLSClientConfig.Clone()
	if dial == nil {
		dial = transport.Dialer().DialContext
	}
	config.NextProtos = nil // a CONNECT is HTTP/1.1
	if c.proxy != nil {
		config.RootCAs = own.RootCAs
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		to := config.Clone()
		to.ServerName, _, _ = net.SplitHostPort(address) // net/http makes the address
		secured := tls.Client(conn, to)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secured, nil
	}
}

// apply adds the certificates to a configuration. The host that the object names is checked against
// the tenant's authorities alone and gets the client certificate. Storage that the host redirects
// to may have a certificate of a public authority, and gets none.
func (c *certificates) apply(config *tls.Config, home bool) error {
	if home {
		config.Certificates = c.client
	}
	if len(c.authorities) == 0 {
		return nil
	}
	authorities := x509.NewCertPool()
	switch known := config.RootCAs; {
	case home:
	case known != nil:
		authorities = known.Clone()
	default:
		var err error
		if authorities, err = x509.SystemCertPool(); err != nil {
			return err
		}
	}
	for _, certificate := range c.authorities {
		authorities.AddCert(certificate)
	}
	config.RootCAs = authorities
	return nil
}

// Route names, by digest, what decides which server is reached under the host's name: the tenant's
// proxy and certificates. It is empty where there are none.
func (c *Connection) Route() string {
	if c.proxy == nil && c.certs == nil {
		return ""
	}
	var proxy string
	if c.proxy != nil {
		proxy = c.proxy.String()
	}
	parts := [][]byte{[]byte(proxy)}
	if c.certs != nil {
		for _, authority := range c.certs.authorities {
			parts = append(parts, authority.Raw)
		}
		parts = append(parts, nil) // the client's certificates follow
		for _, pair := range c.certs.client {
			parts = append(parts, pair.Certificate...)
		}
	}
	h := sha256.New()
	for _, part := range parts {
		digest := sha256.Sum256(part) // of equal length, or parts could be cut in two ways
		h.Write(digest[:])
	}
	return string(h.Sum(nil))
}

// Host returns the host[:port] that the object names.
func (c *Connection) Host() string { return c.host }

// Proxy returns the setting that names the proxy on the way to the host; empty without a proxy.
func (c *Connection) Proxy() string {
	switch {
	case c.proxy != nil:
		return "spec.proxySecretRef"
	case c.pool.Proxied(&url.URL{Scheme: "https", Host: c.host}):
		return "the controller's HTTPS_PROXY"
	case c.insecure && c.pool.Proxied(&url.URL{Scheme: "http", Host: c.host}):
		return "the controller's HTTP_PROXY"
	default:
		return ""
	}
}

// Close closes the connections that are not kept.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.made {
		t.CloseIdleConnections()
	}
}

// sameHost compares host and port, 443 and 80 standing for https and http. strings.ToLower would
// make an i of the letter İ, and with it one host of two.
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
		return v.Hostname() + " " + port
	}
	return strings.EqualFold(normal(u), normal(&url.URL{Host: hostport}))
}
