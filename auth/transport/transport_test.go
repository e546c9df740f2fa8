package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

var errRefused = errors.New("refused by the guard")

// dials counts the calls of its dial function. If refuse is true, the function refuses to connect.
type dials struct {
	n      atomic.Int32
	refuse bool
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.n.Add(1)
	if d.refuse {
		return nil, errRefused
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func newPool(t *testing.T, options transport.Options) *transport.Pool {
	t.Helper()
	if options.CheckTarget == nil {
		options.CheckTarget = endpoint.Guard{}.CheckTarget
	}
	pool, err := transport.NewPool(options)
	must.Succeed(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func parse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	must.Succeed(t, err)
	return u
}

func get(t *testing.T, tr *http.Transport, target string) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	must.Succeed(t, err)
	response, err := tr.RoundTrip(request)
	if err == nil {
		t.Cleanup(func() { _ = response.Body.Close() })
	}
	return response, err
}

func TestNewPoolRefuses(t *testing.T) {
	var d dials
	check := endpoint.Guard{}.CheckTarget
	for name, options := range map[string]transport.Options{
		"insecure": {Dial: d.dial, CheckTarget: check, Base: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
		"no dial":  {CheckTarget: check},
		"no check": {Dial: d.dial},
		"size":     {Dial: d.dial, CheckTarget: check, Size: -1},
	} {
		if _, err := transport.NewPool(options); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestVerificationIsAlwaysOn(t *testing.T) {
	var d dials
	old := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS10}}
	for name, base := range map[string]*http.Transport{"default": nil, "bare": {}, "old": old} {
		pool := newPool(t, transport.Options{Base: base, Dial: d.dial})
		proxy := parse(t, "http://proxy.example.org:3128")
		for kind, tr := range map[string]*http.Transport{"own": pool.Via(nil), "host": pool.Host(parse(t, "https://x.example.org")), "proxy": pool.Proxy(proxy)} {
			c := tr.TLSClientConfig
			if c == nil || c.InsecureSkipVerify || c.MinVersion < tls.VersionTLS12 {
				t.Errorf("%s, %s: %+v", name, kind, c)
			}
		}
	}
	if old.TLSClientConfig.MinVersion != tls.VersionTLS10 {
		t.Error("the base itself was changed")
	}
}

func TestWhoDials(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	guard := &dials{refuse: true}
	unguarded := func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the guard was passed by")
	}
	base := &http.Transport{
		DialTLSContext: unguarded,
		//nolint:staticcheck // deprecated, and used by net/http all the same when set
		Dial: func(string, string) (net.Conn, error) { return nil, errors.New("the guard was passed by") },
	}
	pool := newPool(t, transport.Options{Base: base, Dial: guard.dial})
	for name, tr := range map[string]*http.Transport{
		"host":        pool.Host(parse(t, "https://x.example.org")),
		"http proxy":  pool.Proxy(parse(t, "http://proxy.example.org")),
		"https proxy": pool.Proxy(parse(t, "https://proxy.example.org")),
	} {
		for _, target := range []string{"https://x.example.org", "http://x.example.org"} {
			if _, err := get(t, tr, target); !errors.Is(err, errRefused) {
				t.Errorf("%s to %s: %v", name, target, err)
			}
		}
	}
	// A connection to the administrator's own hosts is not guarded.
	own := newPool(t, transport.Options{Dial: guard.dial, Base: &http.Transport{}})
	if _, err := get(t, own.Via(nil), server.URL); err != nil {
		t.Error(err)
	}
	// A connection to the administrator's proxy, which may be on loopback, is not guarded either.
	proxied := newPool(t, transport.Options{Dial: guard.dial, Base: &http.Transport{Proxy: func(r *http.Request) (*url.URL, error) {
		if r.URL.Host == "direct.example.org" {
			return nil, nil
		}
		return parse(t, server.URL), nil
	}}})
	if _, err := get(t, proxied.Host(parse(t, "http://x.example.org")), "http://x.example.org"); err != nil {
		t.Error(err)
	}
	if _, err := get(t, proxied.Host(parse(t, "http://direct.example.org")), "http://direct.example.org"); !errors.Is(err, errRefused) {
		t.Errorf("past the administrator's proxy: %v", err)
	}
}

// TestOwnProxyIsNotAskedForWhatIsRefused checks that the administrator's proxy gets no request for
// a host that tenants may not reach. With such a request, the proxy could reach the host for a
// tenant.
func TestOwnProxyIsNotAskedForWhatIsRefused(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer proxy.Close()
	var listed endpoint.Allowed
	must.Succeed(t, listed.Set("10.1.2.3:5000"))
	var d dials
	pool := newPool(t, transport.Options{
		Base: &http.Transport{Proxy: http.ProxyURL(parse(t, proxy.URL))}, Dial: d.dial, CheckTarget: endpoint.Guard{AllowHosts: listed}.CheckTarget,
	})
	for _, target := range []string{
		"http://169.254.169.254/latest/meta-data", "https://169.254.169.254/latest", "http://metadata.google.internal/x", "http://10.1.2.3/",
		"http://10.1.2.3:5001/", "http://[::ffff:a9fe:a9fe]/", "http://[fe80::1%25lo]/", "http://0xa9fea9fe/", "http://localhost:8080/",
	} {
		_, err := get(t, pool.Host(parse(t, target)), target)
		if _, refused := errors.AsType[*endpoint.AddressError](err); !refused {
			t.Errorf("%s: %v", target, err)
		}
	}
	if n := asked.Load() + d.n.Load(); n != 0 {
		t.Errorf("%d requests and connections", n)
	}
	for _, target := range []string{"http://registry.example.org/", "http://10.1.2.3:5000/", "http://192.0.2.1/"} {
		if _, err := get(t, pool.Host(parse(t, target)), target); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	if asked.Load() != 3 || d.n.Load() != 0 {
		t.Errorf("%d requests to the proxy, %d connections past it", asked.Load(), d.n.Load())
	}
	// The administrator's own targets are not checked.
	if _, err := get(t, pool.Via(nil), "http://10.1.2.3/"); err != nil {
		t.Error(err)
	}
}

// TestTenantProxyGetsNothingOfOurs checks that a tenant's proxy does not get the secrets that the
// administrator's proxy gets.
func TestTenantProxyGetsNothingOfOurs(t *testing.T) {
	var got http.Header
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer proxy.Close()
	var d dials
	base := &http.Transport{
		Proxy:              http.ProxyURL(parse(t, "http://admin:password@proxy.internal")),
		ProxyConnectHeader: http.Header{"X-Admin": {"secret"}},
		OnProxyConnectResponse: func(context.Context, *url.URL, *http.Request, *http.Response) error {
			return errors.New("the administrator's function sees a tenant's proxy")
		},
		GetProxyConnectHeader: func(context.Context, *url.URL, string) (http.Header, error) {
			return http.Header{"X-Admin": {"secret"}}, nil
		},
		TLSClientConfig: &tls.Config{
			Certificates:         []tls.Certificate{{}},
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil },
			MinVersion:           tls.VersionTLS12,
		},
	}
	pool := newPool(t, transport.Options{Base: base, Dial: d.dial})
	theirs := parse(t, proxy.URL)
	theirs.User = url.UserPassword("tenant", "theirs")
	tr := pool.Proxy(theirs)
	_, err := get(t, tr, "https://sts.eu-west-1.amazonaws.com")
	if refused, ok := errors.AsType[*attempt.ProxyError](err); !ok || refused.Status != http.StatusForbidden {
		t.Fatalf("%v, want the status of the proxy's refusal", err)
	}
	want := "Basic dGVuYW50OnRoZWlycw==" // base64 of tenant:theirs
	if got.Get("X-Admin") != "" || got.Get("Proxy-Authorization") != want {
		t.Errorf("the tenant's proxy was sent %v", got)
	}
	if c := tr.TLSClientConfig; len(c.Certificates) != 0 || c.GetClientCertificate != nil {
		t.Error("the tenant's proxy is shown the administrator's client certificate")
	}
}

func TestOwnProxyRefuses(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer proxy.Close()
	var d dials
	base := &http.Transport{Proxy: http.ProxyURL(parse(t, proxy.URL))}
	_, err := get(t, newPool(t, transport.Options{Base: base, Dial: d.dial}).Via(nil), "https://sts.eu-west-1.amazonaws.com")
	if refused, ok := errors.AsType[*attempt.ProxyError](err); !ok || refused.Status != http.StatusBadGateway {
		t.Errorf("%v, want the status of the refusal", err)
	}
	// If the administrator's Base has an OnProxyConnectResponse, it must be called first.
	own := errors.New("the proxy's certificate is not pinned")
	base.OnProxyConnectResponse = func(context.Context, *url.URL, *http.Request, *http.Response) error { return own }
	if _, err := get(t, newPool(t, transport.Options{Base: base, Dial: d.dial}).Via(nil), "https://sts.eu-west-1.amazonaws.com"); !errors.Is(err, own) {
		t.Errorf("%v, want %v", err, own)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer proxy.Close()
	var d dials
	pool := newPool(t, transport.Options{Dial: d.dial})
	for range 5 {
		response, err := get(t, pool.Proxy(parse(t, proxy.URL)), "http://example.org")
		must.Succeed(t, err)
		_ = response.Body.Close()
	}
	if n := d.n.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	// Another password needs another transport, so that two tenants never share connections.
	other := parse(t, proxy.URL)
	other.User = url.UserPassword("tenant", "b")
	if pool.Proxy(other) == pool.Proxy(parse(t, proxy.URL)) {
		t.Error("two tenants of one proxy share connections")
	}
}

func TestPoolIsBounded(t *testing.T) {
	var d dials
	pool := newPool(t, transport.Options{Dial: d.dial, Size: 3})
	proxy := func(i int) *http.Transport {
		return pool.Proxy(parse(t, fmt.Sprintf("http://proxy-%d.example.org", i)))
	}
	first := proxy(0)
	proxy(1)
	proxy(2)
	if proxy(0) != first {
		t.Error("a proxy has two transports")
	}
	second := proxy(1)
	proxy(3) // evicts proxy(2), which was least recently used
	if proxy(0) != first || proxy(1) != second {
		t.Error("the wrong one was pushed out")
	}
	if n := pool.Len(); n != 3 {
		t.Errorf("%d transports, want 3", n)
	}
}

func TestPoolConcurrently(t *testing.T) {
	var d dials
	pool := newPool(t, transport.Options{Dial: d.dial, Size: 2})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				pool.Proxy(&url.URL{Scheme: "http", Host: fmt.Sprintf("proxy-%d:1", (i+j)%5)})
				pool.Via(nil)
				pool.Host(&url.URL{Scheme: "https", Host: "x"})
			}
			pool.Close()
		})
	}
	wg.Wait()
	if n := pool.Len(); n > 2 {
		t.Errorf("%d transports, want at most 2", n)
	}
}

func TestEnvironment(t *testing.T) {
	base := transport.Default()
	base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:3128"})
	pool := newPool(t, transport.Options{Base: base, Dial: (&net.Dialer{}).DialContext})
	environment := pool.Environment()
	for target, want := range map[string]string{"http://169.254.169.254/latest": "", "https://sts.amazonaws.com": "proxy.example:3128"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		must.Succeed(t, err)
		got := ""
		if proxy, err := environment.Proxy(request); err != nil {
			t.Error(err)
		} else if proxy != nil {
			got = proxy.Host
		}
		if got != want {
			t.Errorf("%s goes through %q, want %q", target, got, want)
		}
	}
	if environment == pool.Via(nil) || !environment.DisableKeepAlives || pool.Via(nil).DisableKeepAlives {
		t.Error("the environment's transport is the pool's own")
	}
	tenant := &url.URL{Scheme: "http", Host: "tenant.example:3128"}
	if pool.Via(tenant) != pool.Proxy(tenant) || pool.Via(tenant) == pool.Via(nil) {
		t.Error("Via leads elsewhere than Proxy")
	}
}
