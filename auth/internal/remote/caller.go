package remote

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
)

// Settings are an administrator's settings for a provider's calls.
type Settings struct {
	// Transport is copied for all connections. Nil means [transport.Default].
	Transport *http.Transport
	// AllowedEndpointHosts are hosts that may have any address, even one in DenyCIDRs.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs are addresses that the hosts and proxies chosen by tenants must not have.
	DenyCIDRs endpoint.CIDRs
	// Timeout bounds each request. Required.
	Timeout time.Duration
}

// Caller makes HTTP clients that share a provider's connections. It is safe for concurrent use.
type Caller struct {
	pool    *transport.Pool
	timeout time.Duration
}

// NewCaller makes a caller. It refuses a timeout that is not positive, and a transport that does
// not verify certificates.
func NewCaller(s Settings) (*Caller, error) {
	if s.Timeout <= 0 {
		return nil, fmt.Errorf("timeout is %s, must be positive", s.Timeout)
	}
	guard := endpoint.Guard{DenyCIDRs: s.DenyCIDRs, AllowHosts: s.AllowedEndpointHosts}
	pool, err := transport.NewPool(transport.Options{
		Base: s.Transport, Dial: guard.DialContext(transport.Dialer()), CheckTarget: guard.CheckTarget,
	})
	if err != nil {
		return nil, err
	}
	return &Caller{pool, s.Timeout}, nil
}

// Timeout returns the time limit of each request.
func (c *Caller) Timeout() time.Duration { return c.timeout }

// Via returns the client for the cloud's own hosts. The client connects through the tenant's proxy,
// if that is not nil.
func (c *Caller) Via(proxy *url.URL) *http.Client { return NewClient(c.pool.Via(proxy), c.timeout) }

// Host returns the client for a host that a tenant chose.
func (c *Caller) Host(target *url.URL) *http.Client { return NewClient(c.pool.Host(target), c.timeout) }

// Environment returns a new transport for one call to a host that the program's own environment
// names.
func (c *Caller) Environment() *http.Transport { return c.pool.Environment() }

// Close closes idle connections.
func (c *Caller) Close() { c.pool.Close() }
