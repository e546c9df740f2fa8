// Package transport keeps the HTTP connections of exchanges: one pool of connections per proxy, and a dialler of its own for
// whatever a tenant chose.
//
// Connections are what makes an exchange slow, so they are kept; tenants name proxies, so what is kept is bounded. A
// transport that is pushed out finishes what it is doing and then closes its connections.
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
)

// DefaultSize is the number of proxies that a [Pool] keeps connections to by default.
const DefaultSize = 64

// Dialer is the dialer of [Default]; it gives up after five seconds.
func Dialer() *net.Dialer { return &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second} }

// Default is a transport to start from: proxies from the environment, TLS 1.2 or later, and a bound on every wait. Set
// TLSClientConfig.RootCAs for certificate authorities other than the system's.
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
	// Base is the transport that all others are copies of; nil for [Default]. It is never used itself.
	Base *http.Transport
	// Dial connects to hosts and proxies chosen by tenants; see endpoint.Guard.DialContext. It is never used for the administrator's
	// own proxy (Base.Proxy). Required.
	Dial DialFunc
	// Size is the number of proxies whose connections are kept, the most recently used; zero for [DefaultSize].
	Size int
}

// Pool holds the transports of a provider. It is safe for concurrent use.
type Pool struct {
	base   *http.Transport
	direct *http.Transport
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

// NewPool refuses a base that does not verify certificates, since a proof given to the wrong server is a stolen one.
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
	size := options.Size
	if size == 0 {
		size = DefaultSize
	}
	if size < 0 {
		return nil, fmt.Errorf("transport: size is %d, must not be negative", size)
	}
	p := &Pool{
		base: clone(base), direct: clone(base), dial: options.Dial, size: size,
		proxies: make(map[string]*list.Element), recent: list.New(),
	}
	p.guard(p.direct)
	p.direct.Proxy = nil
	return p, nil
}

// clone copies a transport with TLS 1.2 as the least.
func clone(t *http.Transport) *http.Transport {
	c := t.Clone()
	if c.TLSClientConfig == nil {
		c.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c.TLSClientConfig.MinVersion = max(c.TLSClientConfig.MinVersion, tls.VersionTLS12)
	return c
}

// guard leaves the tenant's dial function as the only way to a connection.
func (p *Pool) guard(t *http.Transport) {
	t.DialContext, t.DialTLSContext = p.dial, nil
	t.Dial, t.DialTLS = nil, nil //nolint:staticcheck // deprecated, and used by net/http all the same when set.
}

// Host is the transport to a host chosen by a tenant. If the administrator's proxy is on the way, the proxy must judge the
// target's address; otherwise the pool's dial function does.
func (p *Pool) Host(target *url.URL) *http.Transport {
	if p.base.Proxy != nil {
		if proxy, err := p.base.Proxy(&http.Request{URL: target}); err != nil || proxy != nil {
			return p.base
		}
	}
	return p.direct
}

// Via is the transport to hosts that the administrator or the cloud's own tables name, through a proxy chosen by a tenant, or through
// the administrator's if that is nil.
func (p *Pool) Via(proxy *url.URL) *http.Transport {
	if proxy == nil {
		return p.base
	}
	return p.Proxy(proxy)
}

// Environment is a new transport, for one call, to services that the program's own environment names; it keeps no connection. Plain
// HTTP bypasses the proxy, since only the machine's own metadata services speak it, and they send credentials.
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

// Proxy is the transport through an http or https proxy chosen by a tenant. The administrator's own proxy settings, their
// credentials and client certificates do not reach it.
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
	t.ProxyConnectHeader, t.GetProxyConnectHeader, t.OnProxyConnectResponse = nil, nil, nil
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
	for e := p.recent.Front(); e != nil; e = e.Next() {
		e.Value.(*entry).transport.CloseIdleConnections()
	}
}
