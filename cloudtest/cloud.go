package cloudtest

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/change"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

const (
	handshakeTimeout = 10 * time.Second
	headerTimeout    = 30 * time.Second
	idleTimeout      = 2 * time.Minute
)

// ErrClosed is returned when a closed cloud is used.
var ErrClosed = errors.New("cloudtest: the cloud is closed")

// Cloud is a local cloud. It is safe for concurrent use. Make one with [New], end it with
// [Cloud.Close].
type Cloud struct {
	authority *authority
	roots     *x509.CertPool
	server    *service.Server
	journal   *journal.Journal
	faults    *fault.Set
	aws       *aws.Cloud
	azure     *azure.Cloud
	gcp       *gcp.Cloud
	alibaba   *alibaba.Cloud
	parts     []part // one for each cloud provider

	inner  *http.Server // serves the cloud's hosts
	conns  *connQueue   // the connections that inner accepts
	closed chan struct{}
	once   sync.Once

	mu       sync.RWMutex // guards the fields below
	handlers map[string]http.Handler
	proxies  map[*http.Server]struct{}
	pipes    map[*pipe]struct{} // open pipes; nil once the cloud is closed
	address  string             // host:port of the first proxy
}

// New makes the local cloud that cfg describes. It answers through [Cloud.Transport] at once, and
// to other programs once [Cloud.Start] or [Cloud.Serve] is called. The error wraps a
// [*setting.Error], which names the field of cfg that is at fault.
func New(cfg Config) (*Cloud, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		authority: ca,
		roots:     x509.NewCertPool(),
		journal:   journal.New(cfg.JournalSize),
		faults:    &fault.Set{},
		conns:     newConnQueue(),
		closed:    make(chan struct{}),
		handlers:  map[string]http.Handler{},
		proxies:   map[*http.Server]struct{}{},
		pipes:     map[*pipe]struct{}{},
	}
	c.server = &service.Server{Faults: c.faults, Journal: c.journal}
	c.roots.AddCert(ca.cert)
	if err := c.configure(cfg); err != nil {
		return nil, fmt.Errorf("cloudtest: %w", err)
	}
	c.inner = &http.Server{
		Handler:           http.HandlerFunc(c.serveInner),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0), // the journal records the failures instead
	}
	go func() { _ = c.inner.Serve(c.conns) }()
	return c, nil
}

func (c *Cloud) configure(cfg Config) error {
	var err error
	if c.aws, err = aws.New(cfg.AWS, c.Transport()); err != nil {
		return setting.In("aws", err)
	}
	if c.azure, err = azure.New(cfg.Azure, c.Transport()); err != nil {
		return setting.In("azure", err)
	}
	if c.gcp, err = gcp.New(cfg.GCP, c.Transport()); err != nil {
		return setting.In("gcp", err)
	}
	if c.alibaba, err = alibaba.New(cfg.Alibaba, c.Transport()); err != nil {
		return setting.In("alibaba", err)
	}
	c.parts = []part{
		newPart(c.aws, aws.NewAdmin), newPart(c.azure, azure.NewAdmin), newPart(c.gcp, gcp.NewAdmin), newPart(c.alibaba, alibaba.NewAdmin),
	}
	if err := c.faults.SetQuotas(cfg.Quotas); err != nil {
		return err
	}
	if err := setting.Each("faults", cfg.Faults, func(f fault.Fault) error {
		_, err := c.faults.Add(f)
		return err
	}); err != nil {
		return err
	}
	return setting.Each("issuers", cfg.Issuers, c.PutIssuer)
}

// AWS returns the local AWS. Use it to change roles and to register data planes.
func (c *Cloud) AWS() *aws.Cloud { return c.aws }

// Azure returns the local Azure. Use it to change tenants and to register data planes.
func (c *Cloud) Azure() *azure.Cloud { return c.azure }

// GCP returns the local Google Cloud. Use it to change projects and to register data planes.
func (c *Cloud) GCP() *gcp.Cloud { return c.gcp }

// Alibaba returns the local Alibaba Cloud. Use it to change accounts.
func (c *Cloud) Alibaba() *alibaba.Cloud { return c.alibaba }

// Journal returns the record of all calls.
func (c *Cloud) Journal() *journal.Journal { return c.journal }

// Faults returns the faults and quotas in force.
func (c *Cloud) Faults() *fault.Set { return c.faults }

// HostError says why [Cloud.Handle] refused a host name.
type HostError struct {
	// Host is the refused name.
	Host string
	// Fix says what is allowed.
	Fix string
}

// Error returns the host and the fix.
func (e *HostError) Error() string { return "cloudtest: host " + strconv.Quote(e.Host) + ": " + e.Fix }

var hostPattern = regexp.MustCompile(`\A[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)+\z`)

// Handle registers h as the handler of a host, such as an issuer or a data plane. The host is a DNS
// name in lower case with at least one dot, without port. Handle returns a [*HostError] for an IP
// address, and for a host that the cloud itself serves. A nil h removes the host's handler.
func (c *Cloud) Handle(host string, h http.Handler) error {
	switch {
	case len(host) > 253 || !hostPattern.MatchString(host) || net.ParseIP(host) != nil:
		return &HostError{Host: host, Fix: "give a DNS name in lower case with at least one dot, without port"}
	case c.owned(host) != nil:
		return &HostError{Host: host, Fix: "the cloud answers for it itself"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h == nil {
		delete(c.handlers, host)
	} else {
		c.handlers[host] = h
	}
	return nil
}

// HandleIssuer serves an issuer's discovery document and keys under the issuer's host. If several
// issuers share a host, register one handler for all of them with [Cloud.Handle].
func (c *Cloud) HandleIssuer(i *oidc.Issuer) error { return c.Handle(i.Host(), i) }

// PutIssuer serves the discovery document and the fixed public keys of an issuer, under the
// issuer's host. The error is a [*setting.Error].
func (c *Cloud) PutIssuer(s oidc.Static) error {
	h, err := s.Handler()
	if err != nil {
		return err
	}
	u := wire.Must(url.Parse(s.URL)) // the issuer's handler has checked the URL
	return setting.In("url", c.Handle(u.Host, h))
}

// part is the local cloud of one cloud provider, such as AWS.
type part struct {
	// service returns the provider's service at a host, or nil if the provider has no such host.
	// The host is a DNS name in lower case without port.
	service func(host string) service.Service
	// changes are the routes of the admin API for changes to this provider's cloud.
	changes map[string]func(*http.Request) error
}

// newPart returns the part for the cloud of one provider, such as an [*aws.Cloud]. The second
// argument is the function NewAdmin of the provider's package. This function fills a table with the
// methods that change the cloud. newPart makes the part's routes from this table.
func newPart[C interface {
	Service(host string) service.Service
}, A any](cloud C, list func(*change.Table[C]) A) part {
	var t change.Table[C]
	list(&t)
	return part{service: cloud.Service, changes: t.Routes(cloud, readAdmin)}
}

// owned returns the service of the part that serves a host. It returns nil if no part serves the
// host.
func (c *Cloud) owned(host string) service.Service {
	for _, p := range c.parts {
		if s := p.service(host); s != nil {
			return s
		}
	}
	return nil
}

// service returns the service of a host, or nil. The service of a cloud provider has precedence
// over a handler that [Cloud.Handle] registered. The reason is that such a handler gets unchecked
// requests. A host can have both. For example, a provider's registry is added after a handler was
// registered for the registry's host.
func (c *Cloud) service(host string) service.Service {
	if s := c.owned(host); s != nil {
		return s
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if h := c.handlers[host]; h != nil {
		return handedIn(h)
	}
	return nil
}

// CAPEM returns the certificate of the cloud's CA in PEM.
func (c *Cloud) CAPEM() []byte { return append([]byte(nil), c.authority.pem...) }

// WriteCA writes the certificate of the cloud's CA to a file, for SSL_CERT_FILE and similar
// variables. The file appears whole or not at all.
func (c *Cloud) WriteCA(path string) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, c.authority.pem, 0o644); err != nil { //nolint:gosec // a certificate is public
		return fmt.Errorf("cloudtest: write CA: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("cloudtest: write CA: %w", err)
	}
	return nil
}

// Close ends the cloud and all its connections. It is safe to call twice.
func (c *Cloud) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.mu.Lock()
		proxies, pipes := c.proxies, c.pipes
		c.proxies, c.pipes = nil, nil
		c.mu.Unlock()
		for p := range pipes {
			_ = p.Conn.Close()
		}
		for p := range proxies {
			_ = p.Close()
		}
		_ = c.inner.Close()
		_ = c.conns.Close()
	})
	return nil
}

// serveInner answers a request that came through the proxy or through [Cloud.Transport]. Requests
// without TLS are for the metadata servers.
func (c *Cloud) serveInner(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.TLS != nil:
		c.serveHost(w, r)
	case wire.Host(r.Host) == azure.MetadataHost:
		c.server.Serve(w, r, c.azure.Metadata)
	default:
		c.server.Serve(w, r, c.gcp.Metadata)
	}
}

// serveHost answers a request that came over TLS.
func (c *Cloud) serveHost(w http.ResponseWriter, r *http.Request) {
	host := wire.Host(r.Host)
	// The client has checked a certificate for the server name of the TLS handshake. So the Host
	// header must not name a different host. RFC 9110 §7.4.
	if r.TLS.ServerName != host || !portIs443(r.Host) {
		c.refuse(w, journal.Call{
			Host: host, Code: "MisdirectedRequest", Status: http.StatusMisdirectedRequest,
			Reason: "the Host header is not the name of the TLS handshake",
		})
		return
	}
	s := c.service(host)
	if s == nil {
		c.refuse(w, journal.Call{Host: host, Code: "UnknownHost", Status: http.StatusMisdirectedRequest, Reason: refusal(host)})
		return
	}
	c.server.Serve(w, r, s)
}

// refuse answers a request that reached no service.
func (c *Cloud) refuse(w http.ResponseWriter, call journal.Call) {
	call.Time, call.Service = time.Now(), journal.ServiceProxy
	c.journal.Record(call)
	http.Error(w, call.Reason, call.Status)
}

// handedIn returns a service that forwards requests to a handler that [Cloud.Handle] has
// registered.
func handedIn(h http.Handler) service.Service {
	return func(r *service.Request) (service.Protocol, service.Handler) {
		r.Call.Service, r.Call.Operation, r.Call.Resource = journal.ServiceHandler, r.Method, r.URL.Path
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		default:
			r.Call.Operation = "" // a caller must not add new operation names to the journal
		}
		return plainHTTP(), func(r *service.Request) (service.Answer, *service.Refusal) { return r.Forward(h, r.Request, nil) }
	}
}

// plainHTTP is the protocol of registered handlers. Its errors are plain HTTP, without a cloud's
// error format.
func plainHTTP() service.Protocol {
	status := func(code int) *service.Refusal {
		return service.Refuse(code, http.StatusText(code), http.StatusText(code))
	}
	return service.Protocol{
		Refuse: func(_ *service.Request, e *service.Refusal) service.Answer {
			return func(w http.ResponseWriter) *service.Refusal {
				http.Error(w, e.Message, e.Status)
				return nil
			}
		},
		Failure:     status(http.StatusInternalServerError),
		Unavailable: status(http.StatusServiceUnavailable),
		Throttled:   status(http.StatusTooManyRequests),
		Broken:      service.Whole(http.StatusOK, "application/json", []byte(`{"`)),
	}
}

func refusal(host string) string {
	return "host " + strconv.Quote(host) + " is not part of this local cloud"
}

func portIs443(hostport string) bool {
	_, port, err := net.SplitHostPort(hostport)
	return err != nil || port == "443"
}

// connQueue is a net.Listener whose connections come from the method put.
type connQueue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newConnQueue() *connQueue {
	return &connQueue{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// put hands a connection to Accept. It closes the connection if the queue or ctx ends first.
func (q *connQueue) put(ctx context.Context, conn net.Conn) {
	select {
	case q.conns <- conn:
	case <-q.closed:
		_ = conn.Close()
	case <-ctx.Done():
		_ = conn.Close()
	}
}

// Accept waits for the next connection.
func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close makes Accept return [net.ErrClosed].
func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr returns a placeholder, because the queue has no address.
func (q *connQueue) Addr() net.Addr { return &net.UnixAddr{Net: "cloudtest", Name: "cloudtest"} }
