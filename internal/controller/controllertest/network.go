package controllertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Network makes servers on this machine reachable under any host names. Other hosts cannot be
// reached.
type Network struct {
	// Addresses are the addresses of the servers: host:port -> address. Tests may change them.
	Addresses map[string]string
	// Roots are the authorities of the hosts' certificates.
	Roots *x509.CertPool
	// CA is the certificate of one of the authorities in Roots, in PEM.
	CA string

	mu     sync.Mutex // guards dialed
	dialed []string
}

// NewNetwork starts a TLS server for each handler, reachable at port 443. The map's keys are the
// host names.
func NewNetwork(t *testing.T, handlers map[string]http.Handler) *Network {
	t.Helper()
	n := &Network{Addresses: map[string]string{}, Roots: x509.NewCertPool()}
	for host, handler := range handlers {
		server := httptest.NewUnstartedServer(handler)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
		server.StartTLS()
		t.Cleanup(server.Close)
		n.Addresses[host+":443"] = server.Listener.Addr().String()
		n.Roots.AddCert(server.Certificate())
		n.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	}
	return n
}

// Transport returns a transport that trusts the network's hosts. The transport needs [Network.Dial]
// as its dialer to find these hosts.
func (n *Network) Transport() *http.Transport {
	t := transport.Default()
	t.Proxy = nil
	t.TLSClientConfig = &tls.Config{RootCAs: n.Roots, MinVersion: tls.VersionTLS12}
	return t
}

// Dial is a transport.DialFunc that reaches only the network's hosts.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, address)
	n.mu.Unlock()
	to, ok := n.Addresses[address]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

// Dialed returns the hosts that were dialed since the last call of Dialed, each once, as host:port.
func (n *Network) Dialed() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	dialed := n.dialed
	n.dialed = nil
	slices.Sort(dialed)
	return slices.Compact(dialed)
}

// Pool returns a pool of connections to the network's hosts. The pool trusts the authorities in
// roots. With nil, it trusts all hosts of the network.
func (n *Network) Pool(t *testing.T, roots *x509.CertPool) *transport.Pool {
	t.Helper()
	base := n.Transport()
	if roots != nil {
		base.TLSClientConfig.RootCAs = roots
	}
	pool, err := transport.NewPool(transport.Options{Base: base, Dial: n.Dial, CheckTarget: endpoint.Guard{}.CheckTarget})
	must.Succeed(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Proxy is an HTTP proxy that only makes tunnels (CONNECT, RFC 9110, section 9.3.6).
type Proxy struct {
	// Refuses is the HTTP status of every answer; 0 lets the proxy make tunnels. Set it before the
	// first request.
	Refuses int

	network *Network

	mu      sync.Mutex // guards the field below
	tunnels []string
}

// ServeProxy starts a proxy at host:port, without TLS.
func (n *Network) ServeProxy(t *testing.T, hostport string) *Proxy {
	t.Helper()
	p := &Proxy{network: n}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	n.Addresses[hostport] = server.Listener.Addr().String()
	return p
}

// Tunnels returns the hosts to which the proxy made tunnels, each once, as host:port.
func (p *Proxy) Tunnels() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	tunnels := slices.Sorted(slices.Values(p.tunnels))
	return slices.Compact(tunnels)
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if p.Refuses != 0 {
		w.WriteHeader(p.Refuses)
		return
	}
	p.mu.Lock()
	p.tunnels = append(p.tunnels, r.Host)
	p.mu.Unlock()
	there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", p.network.Addresses[r.Host])
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer there.Close() //nolint:errcheck // a test's
	w.WriteHeader(http.StatusOK)
	here, sent, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close() //nolint:errcheck // a test's
	ended := make(chan struct{}, 2)
	carry := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go carry(there, sent) // the buffer may hold bytes that arrived before the hijack
	go carry(here, there)
	<-ended
}

// Pair makes a self-signed certificate for the hosts and its private key, both in PEM.
func Pair(t *testing.T, hosts ...string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: hosts, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must.Succeed(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}
