package cloudtest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// get makes a request and returns the status and body, or the error.
func get(t *testing.T, transport http.RoundTripper, target string, change ...func(*http.Request)) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	must.Succeed(t, err)
	for _, c := range change {
		c(req)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

func TestOnlyTheCloudIsReachable(t *testing.T) {
	w := rig.NewWorld(t)
	ways := map[string]*http.Transport{"in process": w.Transport(), "through the proxy": rig.Proxied(t, w.Cloud)}
	for way, transport := range ways {
		for target, code := range map[string]string{
			"https://example.org/":                                         "UnknownHost",
			"https://sts.xx-west-1.amazonaws.com/":                         "UnknownHost",
			"https://999999999999.dkr.ecr.eu-west-1.amazonaws.com/":        "UnknownHost",
			"https://sts.eu-west-1.amazonaws.com:8443/":                    "UnknownPort",
			"https://127.0.0.1:6443/":                                      "UnknownHost",
			"https://169.254.169.254/":                                     "UnknownHost",
			"https://sts.eu-west-1.amazonaws.com.attacker.example/":        "UnknownHost",
			"https://sts.eu-west-1.amazonaws.com.:443/":                    "UnknownHost",
			"https://oidc.eks.eu-west-1.amazonaws.com.evil.example:443/id": "UnknownHost",
		} {
			before := w.Journal().Last()
			status, _, err := get(t, transport, target)
			if err == nil {
				t.Errorf("%s: %s: HTTP %d", way, target, status)
				continue
			}
			if !strings.Contains(err.Error(), "part of this local cloud") {
				t.Errorf("%s: %s: the error explains nothing: %v", way, target, err)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Verdict: journal.Refused, Service: journal.ServiceProxy})
			if len(calls) != 1 || calls[0].Code != code {
				t.Errorf("%s: %s: journal has %+v, want %s", way, target, calls, code)
			}
		}
	}
	if status, _, err := get(t, ways["through the proxy"], "http://sts.eu-west-1.amazonaws.com/"); status != http.StatusForbidden {
		t.Errorf("plain http: HTTP %d, %v", status, err)
	}
}

func TestHostHeaderMustBeTheHandshakes(t *testing.T) {
	w := rig.NewWorld(t)
	for name, transport := range map[string]http.RoundTripper{"in process": w.Transport(), "through the proxy": rig.Proxied(t, w.Cloud)} {
		for _, host := range []string{"sts.eu-west-1.amazonaws.com", "example.org", "oidc.eks.eu-west-1.amazonaws.com:8443"} {
			status, body, err := get(t, transport, issuerURL+"/keys", func(r *http.Request) { r.Host = host })
			if err != nil || status != http.StatusMisdirectedRequest {
				t.Errorf("%s: host %s: HTTP %d %s, %v", name, host, status, body, err)
			}
		}
		if status, _, err := get(t, transport, issuerURL+"/keys", func(r *http.Request) { r.Host = "OIDC.eks.eu-west-1.amazonaws.com:443" }); status != 200 {
			t.Errorf("%s: own host in another spelling: HTTP %d, %v", name, status, err)
		}
	}
}

// dialProxy sends a CONNECT to the proxy and returns the connection of the tunnel.
func dialProxy(t *testing.T, w *rig.World, host string) net.Conn {
	t.Helper()
	proxy, err := url.Parse(w.ProxyURL())
	must.Succeed(t, err)
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", proxy.Host)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host); err != nil {
		t.Fatal(err)
	}
	const established = "HTTP/1.1 200 Connection established\r\n\r\n"
	answer := make([]byte, len(established))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != established {
		t.Fatalf("%q, %v", answer, err)
	}
	return conn
}

func TestHandshake(t *testing.T) {
	w := rig.NewWorld(t)
	_ = rig.Proxied(t, w.Cloud)
	const host = "sts.eu-west-1.amazonaws.com"
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(w.CAPEM()) {
		t.Fatal("the CA is not PEM")
	}
	good := tls.Client(dialProxy(t, w, host), &tls.Config{ServerName: host, RootCAs: roots})
	must.Succeed(t, good.HandshakeContext(t.Context()))
	leaf := good.ConnectionState().PeerCertificates[0]
	if diff := cmp.Diff([]string{host}, leaf.DNSNames); diff != "" || leaf.IsCA {
		t.Errorf("certificate (-want +got):\n%s", diff)
	}
	before := w.Journal().Last()
	other := tls.Client(dialProxy(t, w, host), &tls.Config{ServerName: "sts.eu-west-2.amazonaws.com", RootCAs: roots})
	if err := other.HandshakeContext(t.Context()); err == nil {
		t.Error("a handshake for another name than the tunnel's succeeded")
	}
	distrust := tls.Client(dialProxy(t, w, host), &tls.Config{ServerName: host, RootCAs: x509.NewCertPool()})
	if err := distrust.HandshakeContext(t.Context()); err == nil {
		t.Error("a client without the CA trusts it")
	}
	calls, err := w.Journal().Wait(t.Context(), journal.Filter{After: before, Operation: "TLS", Code: "HandshakeFailed", Host: host}, 2)
	if err != nil {
		t.Fatalf("%v: %+v", err, calls)
	}
}

func TestServeRefusesTheNetwork(t *testing.T) {
	w := rig.NewWorld(t)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "0.0.0.0:0")
	must.Succeed(t, err)
	if err := w.Serve(t.Context(), ln); err == nil {
		t.Error("served on every address")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	w := rig.NewWorld(t)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Serve(ctx, ln) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClosedCloud(t *testing.T) {
	w := rig.NewWorld(t)
	transport := w.Transport()
	if status, _, err := get(t, transport, issuerURL+"/keys"); status != 200 {
		t.Fatal(err)
	}
	must.Succeed(t, errors.Join(w.Close(), w.Close()))
	transport.CloseIdleConnections()
	if _, _, err := get(t, transport, issuerURL+"/keys"); !errors.Is(err, cloudtest.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := w.Start(t.Context()); !errors.Is(err, cloudtest.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestHandleRefuses(t *testing.T) {
	w := rig.NewWorld(t)
	for _, host := range []string{
		"", "localhost", "UPPER.example", "issuer.example:443", "https://issuer.example", "*.example", "a..example", "-a.example", "127.0.0.1", "[::1]",
		"sts.amazonaws.com", registryHost, strings.Repeat("a.", 130) + "example",
	} {
		var refusal *cloudtest.HostError
		if err := w.Handle(host, http.NotFoundHandler()); !errors.As(err, &refusal) {
			t.Errorf("%q: %v", host, err)
		}
	}
	if err := w.Handle("issuer.example", http.NotFoundHandler()); err != nil {
		t.Error(err)
	}
	if status, _, err := get(t, w.Transport(), "https://issuer.example/"); status != http.StatusNotFound {
		t.Error(status, err)
	}
	if err := w.Handle("issuer.example", nil); err != nil {
		t.Error(err)
	}
	if _, _, err := get(t, w.Transport(), "https://issuer.example/"); err == nil {
		t.Error("a handler that was taken back still answers")
	}
}

// TestHandlerDoesNotOutrankCloud registers a handler at a host, and then adds a registry with the
// same host. The registry must answer, because the handler checks no permissions.
func TestHandlerDoesNotOutrankCloud(t *testing.T) {
	w := rig.NewWorld(t)
	const host = "latecomer.azurecr.io"
	must.Succeed(t, w.Handle(host, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })))
	status := func() int {
		res, err := w.Client().Do(rig.NewRequest(t, http.MethodGet, "https://"+host+"/v2/", "", ""))
		must.Succeed(t, err)
		_ = rig.ReadAll(t, res)
		return res.StatusCode
	}
	if got := status(); got != http.StatusTeapot {
		t.Errorf("the handler: HTTP %d", got)
	}
	tenant := azure.Tenant{ID: "72f988bf-86f1-41af-91ab-2d7cd011db47", Registries: []azure.RegistryConfig{{Name: "latecomer"}}}
	must.Succeed(t, w.Azure().AddTenant(tenant))
	if got := status(); got != http.StatusUnauthorized {
		t.Errorf("the registry: HTTP %d", got)
	}
}
