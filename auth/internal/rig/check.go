package rig

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Disconnections checks that a failed connection is told in words that are the same each time and hold no address. Good is a
// transport that ask gets a token through.
func Disconnections(t *testing.T, good *http.Transport, ask func(t *testing.T, base *http.Transport) error) {
	t.Helper()
	closed := dialTo(Nowhere(t))
	for _, test := range []struct {
		name  string
		spoil func(*http.Transport)
		text  string
	}{
		{"name", func(tr *http.Transport) {
			tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "10.0.0.7", IsNotFound: true}}
			}
		}, "the host's name does not exist"},
		{"resolver", func(tr *http.Transport) {
			tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "server misbehaving", Server: "10.0.0.10:53"}
			}
		}, "the host's name could not be resolved"},
		{"refused", func(tr *http.Transport) { tr.DialContext = closed }, "the connection was refused"},
		{"authority", func(tr *http.Transport) { tr.TLSClientConfig.RootCAs = x509.NewCertPool() }, "the certificate is signed by an unknown authority"},
		{"host", func(tr *http.Transport) { tr.TLSClientConfig.ServerName = "" }, "the certificate is for another host"},
		{"time", func(tr *http.Transport) {
			tr.TLSClientConfig.Time = func() time.Time { return time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) }
		}, "the certificate has expired or is not yet valid"},
		{"proxy", func(tr *http.Transport) {
			tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.internal:3128", User: url.UserPassword("me", "proxy-password")})
			tr.DialContext = closed
		}, "the proxy: the connection was refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := good.Clone()
			test.spoil(base)
			err := ask(t, base)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Code != auth.CodeUnreachable || !strings.HasSuffix(e.Err.Error(), test.text) {
				t.Errorf("%v, want code Unreachable and %q", err, test.text)
			}
			for _, hidden := range []string{"10.0.0", "127.0.0.1", "proxy-password", "proxy.internal"} {
				if strings.Contains(fmt.Sprintf("%v", err), hidden) {
					t.Errorf("%q is told: %v", hidden, err)
				}
			}
		})
	}
}

// RetryAfter checks that the header is honoured and bounded. Ask has a server throttle with that header.
func RetryAfter(t *testing.T, ask func(t *testing.T, header string) error) {
	t.Helper()
	for header, want := range map[string][2]time.Duration{
		"":        {0, 0},
		"7":       {7 * time.Second, 7 * time.Second},
		"-1":      {0, 0},
		"soon":    {0, 0},
		"9999999": {15 * time.Minute, 15 * time.Minute},
		time.Now().Add(time.Minute).UTC().Format(http.TimeFormat): {50 * time.Second, time.Minute},
		"Mon, 02 Jan 2006 15:04:05 GMT":                           {0, 0},
	} {
		err := ask(t, header)
		e, ok := errors.AsType[*auth.Error](err)
		if !ok || e.Code != auth.CodeThrottled || e.RetryAfter < want[0] || e.RetryAfter > want[1] {
			t.Errorf("Retry-After %q: %v, want between %v", header, err, want)
		}
	}
}

// Attempt is a server's answer, and how often it is asked before a call gives up.
type Attempt struct {
	Name     string
	Handler  http.HandlerFunc
	Requests int32
}

// Attempts checks that requests are repeated where that may help, and not otherwise. Ask makes a call to a server of that handler.
func Attempts(t *testing.T, ask func(t *testing.T, handler http.HandlerFunc), attempts ...Attempt) {
	t.Helper()
	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, a := range append(attempts, Attempt{"hanging up", hangUp, 2}) {
		t.Run(a.Name, func(t *testing.T) {
			var requests atomic.Int32
			ask(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				a.Handler(w, r)
			})
			if got := requests.Load(); got != a.Requests {
				t.Errorf("%d requests, want %d", got, a.Requests)
			}
		})
	}
}

// DoesNotPrint checks that a token says no more than text, however it is printed. Secret is in all of its secrets.
func DoesNotPrint[T fmt.Stringer](t *testing.T, token *T, secret, text string) {
	t.Helper()
	for _, value := range []any{token, *token, struct{ T *T }{token}, []T{*token}, map[string]any{"t": token}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			if got := fmt.Sprintf(verb, value); strings.Contains(got, secret) || strings.Contains(got, fmt.Sprintf("%x", secret)) {
				t.Errorf("%s of %T: %s", verb, value, got)
			}
		}
		data, err := json.Marshal(value)
		Must(t, err)
		if strings.Contains(string(data), secret) || !strings.Contains(string(data), text) {
			t.Errorf("JSON of %T: %s", value, data)
		}
	}
	if got := fmt.Sprintf("%v %#v", token, *token); got != text+" "+text {
		t.Errorf("%s", got)
	}
}

// Asker makes a provider with the settings that an administrator has for tenants' proxies, and asks it for a token.
type Asker func(t *testing.T, allow endpoint.Allowed, deny endpoint.CIDRs, opts ...auth.Option) error

// TenantProxies checks where a proxy of a tenant's may be, and that one which answers in the cloud's place gets no proof. The
// provider's own transport must have no proxy, so that only the tenant's leads to the cloud.
func (r *Rig) TenantProxies(t *testing.T, ask Asker) {
	t.Helper()
	r.Base.Proxy = nil
	if err := ask(t, r.Allow, endpoint.CIDRs{}, auth.WithProxyURL(r.Proxy)); err != nil {
		t.Errorf("a listed proxy: %v", err)
	}
	// A proxy inside the cluster is refused, whatever its name.
	private := &url.URL{Scheme: "http", Host: "10.96.0.1:3128"}
	for proxy, want := range map[*url.URL]string{r.Proxy: "loopback", private: "in --deny-cidrs"} {
		err := ask(t, endpoint.Allowed{}, endpoint.CIDRs{}, auth.WithProxyURL(proxy))
		e, ok := errors.AsType[*auth.Error](err)
		if !ok || e.Code != auth.CodeEndpointRefused || e.Temporary() || !strings.Contains(e.Error(), want) || !strings.Contains(e.Fix, "--allowed-endpoint-hosts") {
			t.Errorf("%s: %v", proxy.Host, err)
		}
	}
	var proofs atomic.Int32
	// It terminates TLS with a certificate of its own.
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proofs.Add(1) }))
	defer impostor.Close()
	liar := ConnectTo(t, impostor.Listener.Addr().String())
	allow, err := endpoint.ParseAllowed(liar.Host)
	Must(t, err)
	err = ask(t, allow, endpoint.CIDRs{}, auth.WithProxyURL(liar))
	if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "the certificate is") {
		t.Errorf("a proxy that lies: %v", err)
	}
	if proofs.Load() != 0 {
		t.Error("the proof reached the impostor")
	}
}
