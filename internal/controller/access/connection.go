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
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// Connection sends requests to one host, and to the hosts to which that host redirects. It belongs
// to one reconciliation, but may reuse network connections of other reconciliations.
// [Access.Connect] makes it; the caller closes it.
type Connection struct {
	// host is the host[:port] in the object's spec.
	host string
	// bound is true if the credential was minted for this host. Such a credential must not be sent
	// to another host.
	bound bool
	// insecure is true if the object allows plain HTTP. If the field bound is true, insecure is
	// false.
	insecure bool
	pool     *transport.Pool
	// proxy is the tenant's proxy; nil if there is none.
	proxy *url.URL
	// certs has the tenant's certificates; nil if there are none.
	certs *certificates

	mu      sync.Mutex // guards the fields below; never held during I/O
	made    map[transportKey]*http.Transport
	refused *endpoint.AddressError // last refusal to connect to an address; nil if there was none
}

// transportKey is a key of the map Connection.made. The transports in this map use certificates of
// the tenant, so no two Connections share them.
type transportKey struct {
	base   *http.Transport
	home   bool             // whether the transport is for requests to the connection's host
	client *tls.Certificate // client certificate of the login; nil if there is none
}

// As returns a transport that sends requests over the connection. If the login has a client
// certificate, the transport uses it for requests to the connection's host, and for no others. Such
// a request needs TLS unless the object allows plain HTTP. Without TLS, it fails with a
// [*DetourError]. The transport adds nothing else of the login's credential. That is up to the
// service's client.
func (c *Connection) As(login Login) http.RoundTripper { return session{c, login.Credential} }

// session is a connection with a credential.
type session struct {
	conn  *Connection
	shown Credential
}

// RoundTrip implements http.RoundTripper. Its error may be a [*DetourError].
func (s session) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.shown.Certificate == nil || !origin.SameHost(req.URL, s.conn.host) {
		return s.conn.roundTrip(req, nil)
	}
	if req.URL.Scheme != "https" && !s.conn.insecure {
		return nil, &DetourError{s.conn.host}
	}
	return s.conn.roundTrip(req, s.shown.Certificate)
}

// DetourError reports a request that would have sent a credential to another host, or without TLS.
type DetourError struct {
	// Host is the host[:port] that the credential is for.
	Host string
}

func (e *DetourError) Error() string {
	return e.Host + " asks for the credential to be sent to another host, or without TLS, which is refused"
}

// roundTrip sends a request, with a login's client certificate if there is one.
func (c *Connection) roundTrip(req *http.Request, client *tls.Certificate) (*http.Response, error) {
	home := origin.SameHost(req.URL, c.host)
	if c.bound && (!home || req.URL.Scheme != "https") && req.Header.Get("Authorization") != "" {
		return nil, &DetourError{c.host}
	}
	// Choose the transport by the request's URL, which can be the target of a redirect. The
	// administrator's proxy settings can differ between this target and the connection's host.
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

// Explain returns the error to report for err. If a dial has refused an address, Explain returns
// this refusal. Clients retry, or try without TLS, and then report only the later failure.
func (c *Connection) Explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.refused != nil {
		return fmt.Errorf("%s: %w", c.host, c.refused)
	}
	return err
}

// own returns the transport for a transportKey. The transport uses the tenant's certificates.
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

// proxyTimeout bounds the time to connect to an https proxy, including the TLS handshake.
const proxyTimeout = 10 * time.Second

// toProxy returns a function that opens TLS connections to an https proxy. Without this function,
// net/http would open them with the TLS configuration own, which is for the server behind the
// proxy. The function ensures two things:
//   - The proxy does not get the client certificate for the server.
//   - The tenant's authorities verify the tenant's own proxy, but never the administrator's proxy.
func (c *Connection) toProxy(base *http.Transport, own *tls.Config) transport.DialFunc {
	dial, config := base.DialContext, base.TLSClientConfig.Clone()
	if dial == nil {
		dial = transport.Dialer().DialContext
	}
	config.NextProtos = nil // CONNECT is sent as HTTP/1.1, so do not offer HTTP/2
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
		// net/http makes the address, so SplitHostPort returns no error.
		to.ServerName, _, _ = net.SplitHostPort(address)
		secured := tls.Client(conn, to)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secured, nil
	}
}

// apply adds the certificates to a TLS configuration. The connection's host gets the client
// certificate, and is verified with the tenant's authorities only. The host may redirect to
// storage. The storage gets no client certificate, and may have a server certificate of a public
// authority.
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

// Route returns a digest of the tenant's proxy and certificates. The proxy and the certificates
// decide which server answers for the host's name. Without them, the digest is empty.
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
		parts = append(parts, nil) // separates the authorities from the client's certificates
		for _, pair := range c.certs.client {
			parts = append(parts, pair.Certificate...)
		}
	}
	h := sha256.New()
	for _, part := range parts {
		// Each part is hashed: digests have equal length, so different parts never join to the same
		// bytes.
		digest := sha256.Sum256(part)
		h.Write(digest[:])
	}
	return string(h.Sum(nil))
}

// Host returns the host[:port] of the object's server.
func (c *Connection) Host() string { return c.host }

// Proxy returns the name of the setting that configures the proxy to the host; empty without a
// proxy.
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

// Close closes the idle connections that no other reconciliation can use.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.made {
		t.CloseIdleConnections()
	}
}
