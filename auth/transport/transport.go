// Package transport keeps the HTTP connections of exchanges: one pool of connections per proxy, and
// a dialler of its own for whatever a tenant chose.
//
// Opening connections makes an exchange slow, so connections are kept. Tenants name proxies, so the
// number of transports is bounded. An evicted transport finishes its requests and then closes its
// connections.
package transport

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// DefaultSize is the number of proxies that a [Pool] keeps connections to by default.
const DefaultSize = 64

// Dialer is the dialer of [Default]; it gives up after five seconds.
func Dialer() *net.Dialer { return &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second} }

// Default is a transport to start from: proxies from the environment, TLS 1.2 or later, and a bound
// on every wait. Set TLSClientConfig.RootCAs for certificate authorities other than the system's.
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
	}
}

// DialFunc dials as [net.Dialer.DialContext] does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options configure a [Pool].
type Options struct {
	// Base is the transport from which all others are copied; nil for [Default]. No request goes
	// through Base itself.
	Base *http.Transport
	// Dial connects to hosts and proxies chosen by tenants; see endpoint.Guard.DialContext. It is
	// never used for the administrator's own proxy (Base.Proxy). Required.
	Dial DialFunc
	// CheckTarget refuses, before the administrator's proxy is asked for it, a host:port that a
	// tenant chose and that nobody may reach; see endpoint.Guard.CheckTarget. Required.
	CheckTarget func(hostport string) error
	// Size is the number of proxies whose connections are kept, the most recently used; zero for
	// [DefaultSize].
	Size int
}

// Pool holds the transports of a provider. It is safe for concurrent use.
type Pool struct {
	base   *http.Transport
	direct *http.Transport // to hosts that tenants choose
	behind *http.Transport // to the same, through the administrator's proxy
	dial   DialFunc
	size   int

	mu      sync.Mutex // never held during I/O
	proxies map[string]*list.Element
	recent  *list.List // of *entry, the one used last in front
}

type entry struct {
	proxy     string
	transport *http.Transport
}

// NewPool refuses a base that does not verify certificates, since a proof given to the wrong server
// is a stolen one.
func NewPool(options Options) (*Pool, error) {
	base := options.Base
	switch {
	case base == nil:
		base = Default()
	case base.TLSClientConfig != nil && base.TLSClientConfig.InsecureSkipVerify:
		return nil, errors.New("transport: certificates are not verified (InsecureSkipVerify); set RootCAs instead")
	}
	if options.Dial == nil {
		return nil, errors.New("transport: no dial function for the hosts that tenants choose")
	}
	if options.CheckTarget == nil {
		return nil, errors.New("transport: no function that checks the hosts that tenants choose")
	}
	size := options.Size
	if size == 0 {
		size = DefaultSize
	}
	if size < 0 {
		return nil, fmt.Errorf("transport: size is %d, must not be negative", size)
	}
	p := &Pool{
		base: clone(base), direct: clone(base), behind: clone(base), dial: options.Dial, size: size,
		proxies: make(map[string]*list.Element), recent: list.New(),
	}
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

// clone copies a transport with TLS 1.2 as the least, and with errors that name the status of a
// proxy's refusal.
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

// proxyRefusal is an [http.Transport.OnProxyConnectResponse]. Without it net/http keeps only the
// proxy's words.
func proxyRefusal(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	return &attempt.ProxyError{Status: response.StatusCode}
}

// guard leaves the tenant's dial function as the only way to a connection.
func (p *Pool) guard(t *http.Transport) {
	t.DialContext, t.DialTLSContext = p.dial, nil
	t.Dial, t.DialTLS = nil, nil //nolint:staticcheck // deprecated, and used by net/http all the same when set.
}

// authority is the URL's host:port.
func authority(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// Host is the transport to a host chosen by a tenant. Without a proxy, the pool's dial function
// judges the host's address. If the administrator's proxy is on the way, CheckTarget judges what
// the host's name tells, and the proxy must judge the address.
func (p *Pool) Host(target *url.URL) *http.Transport {
	if p.Proxied(target) {
		return p.behind
	}
	return p.direct
}

// Proxied reports whether the administrator's proxy is on the way to the target.
func (p *Pool) Proxied(target *url.URL) bool {
	if p.base.Proxy == nil {
		return false
	}
	proxy, err := p.base.Proxy(&http.Request{URL: target})
	return err != nil || proxy != nil
}

// Via returns the transport to hosts that the administrator or the cloud's own tables name. It goes
// through the given proxy, which a tenant chose, or through the administrator's proxy if the
// argument is nil.
func (p *Pool) Via(proxy *url.URL) *http.Transport {
	if proxy == nil {
		return p.base
	}
	return p.Proxy(proxy)
}

// Environment is a new transport, for one call, to services that the program's own environment
// names; it keeps no connection. Plain HTTP bypasses the proxy, since only the machine's own
// metadata services speak it, and they send credentials.
func (p *Pool) Environment() *http.Transport {
	t := clone(p.base)
	t.DisableKeepAlives = true
	if proxy := t.Proxy; proxy != nil {
		t.Proxy = func(request *http.Request) (*url.URL, error) {
			if request.URL.Scheme != "https" {
				return nil, nil //nolint:nilnil // net/http's way to say that there is no proxy
			}
			return proxy(request)
		}
	}
	return t
}

// Proxy is the transport through an http or https proxy chosen by a tenant. The administrator's own
// proxy settings, their credentials and client certificates do not reach it.
func (p *Pool) Proxy(proxy *url.URL) *http.Transport {
	key := proxy.String()
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.proxies[key]; ok {
		p.recent.MoveToFront(e)
		return e.Value.(*entry).transport
	}
	t := p.base.Clone()
	p.guard(t)
	proxyURL := *proxy
	t.Proxy = http.ProxyURL(&proxyURL)
	t.ProxyConnectHeader, t.GetProxyConnectHeader, t.OnProxyConnectResponse = nil, nil, proxyRefusal
	t.TLSClientConfig.Certificates, t.TLSClientConfig.GetClientCertificate, t.TLSClientConfig.ClientSessionCache = nil, nil, nil
	p.proxies[key] = p.recent.PushFront(&entry{key, t})
	if p.recent.Len() > p.size {
		oldest := p.recent.Remove(p.recent.Back()).(*entry)
		delete(p.proxies, oldest.proxy)
		oldest.transport.CloseIdleConnections()
	}
	return t
}

// Close closes the connections that are idle; those in use close after it.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base.CloseIdleConnections()
	p.direct.CloseIdleConnections()
	p.behind.CloseIdleConnections()
	for e := p.recent.Front(); e != nil; e = e.Next() {
		e.Value.(*entry).transport.CloseIdleConnections()
	}
}
