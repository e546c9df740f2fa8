package gcp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"golang.org/x/oauth2"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
)

func TestTenantProxy(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	// The administrator has no proxy here, so that only the tenant's leads to the cloud.
	w.base.Proxy = nil
	provider := w.provider(t, gcp.Config{AllowedEndpointHosts: w.allow})
	token, err := auth.GetToken(t.Context(), provider, w.as(a, auth.WithProxyURL(w.proxy), auth.WithImageRepository(imageA))...)
	must(t, err)
	if _, ok := token.(*auth.RegistryCredentials); !ok {
		t.Errorf("a %T", token)
	}
	if w.count(opSTS) != 1 || w.count(opImpersonate) != 1 {
		t.Errorf("%d exchanges, %d impersonations", w.count(opSTS), w.count(opImpersonate))
	}

	// A proxy inside the cluster is none, whatever it is called.
	for name, config := range map[string]gcp.Config{"loopback": {}, "denied": {DenyCIDRs: endpoint.CIDRs{netip.MustParsePrefix("127.0.0.0/8")}}} {
		_, err = auth.GetToken(t.Context(), w.provider(t, config), w.as(a, auth.WithProxyURL(w.proxy))...)
		e, ok := errors.AsType[*auth.Error](err)
		if !ok || e.Code != auth.CodeEndpointRefused || e.Temporary() || !strings.Contains(e.Fix, "--allowed-endpoint-hosts") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTenantProxyThatLies(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	var proofs atomic.Int32
	// It terminates TLS with a certificate of its own.
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proofs.Add(1) }))
	defer impostor.Close()
	target, err := url.Parse(impostor.URL)
	must(t, err)
	proxy := connectTo(t, target.Host)
	allow, err := endpoint.ParseAllowed(proxy.Host)
	must(t, err)
	provider := w.provider(t, gcp.Config{AllowedEndpointHosts: allow})
	_, err = auth.GetToken(t.Context(), provider, w.as(a, auth.WithProxyURL(proxy))...)
	if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "the certificate is") {
		t.Errorf("%v", err)
	}
	if proofs.Load() != 0 {
		t.Error("the proof reached the impostor")
	}
}

// connectTo is a proxy that leads every CONNECT to one address.
func connectTo(t *testing.T, address string) *url.URL {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(rw, "CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		splice(r.Context(), rw, address)
	}))
	t.Cleanup(server.Close)
	proxy, err := url.Parse(server.URL)
	must(t, err)
	return proxy
}

// splice answers a CONNECT request with a connection to address.
func splice(ctx context.Context, rw http.ResponseWriter, address string) {
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		http.Error(rw, "no", http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(far, near) }()
	_, _ = io.Copy(near, far)
}

func TestTokenSource(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	tokens := cache.New(cache.Options{MaxSize: 10})
	source := gcp.NewTokenSource(t.Context(), w.gcp, w.as(a, auth.WithCache(tokens, auth.InvolvedObject{}))...)
	client := oauth2.NewClient(context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: w.base}), source)
	for range 3 {
		response, err := client.Get("https://storage.googleapis.com/storage/v1/b/some-bucket/o")
		must(t, err)
		must(t, response.Body.Close())
	}
	calls := w.calls(cloudgcp.ServiceStorage)
	if len(calls) != 3 || calls[2].Principal != "serviceAccount:"+emailA {
		t.Errorf("%+v", calls)
	}
	if n := w.exchanges(); n != 1 {
		t.Errorf("%d exchanges, want 1", n)
	}
	// It keeps no token of its own: what the cache drops is gone.
	tokens.Invalidate(a.Subject)
	_, err := source.Token()
	must(t, err)
	if n := w.exchanges(); n != 2 {
		t.Errorf("%d exchanges, want 2", n)
	}

	end := w.fault(t, fault.Fault{Service: cloudgcp.ServiceSTS, Kind: fault.Latency, Delay: 2 * time.Second})
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	if _, err := gcp.NewTokenSource(ctx, w.gcp, w.as(a)...).Token(); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > time.Second {
		t.Errorf("%v after %s", err, time.Since(started))
	}
	if _, err := gcp.NewTokenSource(t.Context(), w.gcp).Token(); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("for nobody: %v", err)
	}
	end()
	if _, err := gcp.NewTokenSource(t.Context(), w.gcp, w.as(a, auth.WithImageRepository(imageA))...).Token(); auth.CodeOf(err) != auth.CodeOptionUnsupported {
		t.Errorf("with an image repository: %v", err)
	}
}

func TestRegistryCredentials(t *testing.T) {
	w := newWorld(t)
	a := w.tenantA(t)
	token, err := auth.GetToken(t.Context(), w.gcp, w.as(a, auth.WithImageRepository(imageA))...)
	must(t, err)
	c := token.(*auth.RegistryCredentials)
	if c.Username != "oauth2accesstoken" || c.GetDuration() < 50*time.Minute || c.GetDuration() > time.Hour {
		t.Errorf("%s, valid for %s", c.Username, c.GetDuration())
	}
	if whose, err := w.whose(t.Context(), &gcp.Token{Secret: c.Password, ExpiresAt: c.ExpiresAt}); err != nil || whose != "serviceAccount:"+emailA {
		t.Errorf("%s, %v", whose, err)
	}
}

func TestOnlyItsOwnTokens(t *testing.T) {
	w := newWorld(t)
	for _, token := range []auth.Token{nil, (*gcp.Token)(nil), &auth.RegistryCredentials{}} {
		if _, err := w.gcp.NewRegistryToken(t.Context(), token, &auth.Request{ImageRepository: imageA}); auth.CodeOf(err) != auth.CodeResponseInvalid {
			t.Errorf("%T: %v", token, err)
		}
	}
	token := &gcp.Token{Secret: auth.NewSecret("a"), ExpiresAt: time.Now().Add(time.Hour)}
	for _, host := range []string{"gcr.io.evil.example/a", "u-france-east1-docker.s3nsregistry.fr/a", ""} {
		if _, err := w.gcp.NewRegistryToken(t.Context(), token, &auth.Request{ImageRepository: host}); auth.CodeOf(err) != auth.CodeEndpointRefused {
			t.Errorf("%q: %v", host, err)
		}
	}
	if calls := w.cloud.Journal().Calls(journal.Filter{}); len(calls) != 0 {
		t.Errorf("%d calls", len(calls))
	}
}
