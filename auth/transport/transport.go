// Package transport manages the HTTP connections of exchanges. It has one pool of connections per
// proxy. A separate dial function connects to hosts and proxies that a tenant chose.
//
// A new connection makes an exchange slow, so connections stay open. Tenants choose proxies, so the
// number of transports is bounded. An evicted transport finishes its requests and then closes its
// connections.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// DefaultSize is the default of [Options].Size.
const DefaultSize = 64

// Dialer returns the dialer of [Default]. It gives up after five seconds.
func Dialer() *net.Dialer { return &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second} }

// Default returns a transport as a basis for other transports. It has proxies from the environment,
// TLS 1.2 or later, and a time limit for each step. Set TLSClientConfig.RootCAs for certificate
// authorities other than the system's.
func Default() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            Dialer().DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    10,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: attempt.StreamBuffer},
	}
}

// DialFunc dials as [net.Dialer.DialContext] does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options configure a [Pool].
type Options struct {
	// Base is copied for all transports; nil means [Default]. No request goes through Base itself.
	Base *http.Transport
	// Dial connects to hosts and proxies that tenants chose; see endpoint.Guard.DialContext. It is
	// never used for the administrator's own proxy (Base.Proxy). Required.
	Dial DialFunc
	// CheckTarget refuses a host:port that a tenant chose but may not reach. It is called before
	// the administrator's proxy gets a request; see endpoint.Guard.CheckTarget. Required.
	CheckTarget func(hostport string) error
	// Size is the number of proxies whose connections stay open. The least recently used proxy is
	// evicted. Zero means [DefaultSize].
	Size int
}

// Pool has the transports for connections with and without a tenant's proxy. It is safe for
// concurrent use.
type Pool struct {
	base   *http.Transport
	direct *http.Transport // to hosts that tenants choose, without a proxy
	behind *http.Transport // to hosts that tenants choose, through the administrator's proxy
	dial   DialFunc
	size   int

	mu      sync.Mutex // never held during I/O
	proxies []entry    // most recently used last
}

// entry is the transport through a tenant's proxy.
type entry struct {
	proxy     string
	transport *http.Transport
}

// NewPool makes a pool. It refuses a base that does not verify certificates. With such a base, a
// false server could receive a proof of identity, such as a JWT, and use it.
func NewPool(options Options) (*Pool, error) {
	base, size := cmp.Or(options.Base, Default()), cmp.Or(options.Size, DefaultSize)
	switch {
	case base.TLSClientConfig != nil && base.TLSClientConfig.InsecureSkipVerify:
		return nil, errors.New("transport: certificates are not verified (InsecureSkipVerify); set RootCAs instead")
	case options.Dial == nil:
		return nil, errors.New("transport: no dial function for the hosts that tenants choose")
	case options.CheckTarget == nil:
		return nil, errors.New("transport: no function that checks the hosts that tenants choose")
	case size < 0:
		return nil, fmt.Errorf("transport: size is %d, must not be negative", size)
	}
	p := &Pool{base: clone(base), direct: clone(base), behind: clone(base), dial: options.Dial, size: size}
	p.guard(p.direct)
	p.direct.Proxy = nil
	if proxy := base.Proxy; proxy != nil {
		p.behind.Proxy = func(request *http.Request) (*url.URL, error) {
			if err := options.CheckTarget(authority(request.URL)); err != nil {
				return nil, err
			}
			return proxy(request)
		}
	}
	return p, nil
}

// clone copies a transport. The copy uses TLS 1.2 or later. If a proxy refuses to connect, the
// copy's error has the proxy's status.
func clone(t *http.Transport) *http.Transport {
	c := t.Clone()
	own := c.OnProxyConnectResponse
	c.OnProxyConnectResponse = func(ctx context.Context, proxy *url.URL, request *http.Request, response *http.Response) error {
		if own != nil {
			if err := own(ctx, proxy, request, response); err != nil {
				return err
			}
		}
		return proxyRefusal(ctx, proxy, request, response)
	}
	if c.TLSClientConfig == nil {
		c.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c.TLSClientConfig.MinVersion = max(c.TLSClientConfig.MinVersion, tls.VersionTLS12)
	return c
}

// proxyRefusal is for [http.Transport.OnProxyConnectResponse]. It returns an error with the
// response's status code if the proxy refuses to connect. Without this function, the error of
// net/http has only the response's reason phrase. The status code would be lost.
func proxyRefusal(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	return &attempt.ProxyError{Status: response.StatusCode}
}

// guard makes the transport dial only with the pool's dial function.
func (p *Pool) guard(t *http.Transport) {
	t.DialContext, t.DialTLSContext = p.dial, nil
	t.Dial, t.DialTLS = nil, nil //nolint:staticcheck // deprecated, and used by net/http all the same when set.
}

// authority returns the URL's host:port.
func authority(u *url.URL) string {
	port := "443"
	if u.Scheme == "http" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}

// Host returns the transport to a host that a tenant chose. Without a proxy, the pool's dial
// function checks the host's address. With the administrator's proxy, CheckTarget checks the host
// without resolving its name. So the proxy must check the address.
func (p *Pool) Host(target *url.URL) *http.Transport {
	if p.Proxied(target) {
		return p.behind
	}
	return p.direct
}

// Proxied reports whether connections to the target use the administrator's proxy.
func (p *Pool) Proxied(target *url.URL) bool {
	if p.base.Proxy == nil {
		return false
	}
	proxy, err := p.base.Proxy(&http.Request{URL: target})
	return err != nil || proxy != nil
}

// Via returns the transport to hosts that no tenant chose, such as the cloud's own. The argument is
// a proxy that a tenant chose. If it is nil, the transport uses the administrator's proxy.
func (p *Pool) Via(proxy *url.URL) *http.Transport {
	if proxy == nil {
		return p.base
	}
	return p.Proxy(proxy)
}

// Environment returns a new transport for one call to a service that the program's environment
// configures. It leaves no connection open. Only HTTPS requests use the administrator's proxy.
// Plain HTTP is for the machine's own metadata services. Their answers contain credentials, which
// no proxy may see.
func (p *Pool) Environment() *http.Transport {
	t := clone(p.base)
	t.DisableKeepAlives = true
	if proxy := t.Proxy; proxy != nil {
		t.Proxy = func(request *http.Request) (*url.URL, error) {
			if request.URL.Scheme != "https" {
				return nil, nil // for net/http, a nil URL means that there is no proxy
			}
			return proxy(request)
		}
	}
	return t
}

// Proxy returns the transport through an http or https proxy that a tenant chose. The tenant's
// proxy never gets the administrator's proxy settings, credentials or client certificates.
func (p *Pool) Proxy(proxy *url.URL) *http.Transport {
	key := proxy.String()
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.proxies, func(e entry) bool { return e.proxy == key }); i >= 0 {
		used := p.proxies[i]
		p.proxies = append(slices.Delete(p.proxies, i, i+1), used)
		return used.transport
	}
	t := p.base.Clone()
	p.guard(t)
	proxyURL := *proxy
	t.Proxy = http.ProxyURL(&proxyURL)
	t.ProxyConnectHeader, t.GetProxyConnectHeader, t.OnProxyConnectResponse = nil, nil, proxyRefusal
	t.TLSClientConfig.Certificates, t.TLSClientConfig.GetClientCertificate, t.TLSClientConfig.ClientSessionCache = nil, nil, nil
	p.proxies = append(p.proxies, entry{key, t})
	if len(p.proxies) > p.size {
		p.proxies[0].transport.CloseIdleConnections()
		p.proxies = slices.Delete(p.proxies, 0, 1)
	}
	return t
}

// Close closes idle connections now, and connections in use after their requests.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base.CloseIdleConnections()
	p.direct.CloseIdleConnections()
	p.behind.CloseIdleConnections()
	for _, e := range p.proxies {
		e.transport.CloseIdleConnections()
	}
}
