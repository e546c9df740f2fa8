package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt/attempttest"
)

// Disconnections checks that a provider explains a failed connection and repeats the request as
// package attempt requires. The function ask must get a token through the given transport. Errors
// must contain the cloud's name.
func Disconnections(t *testing.T, where string, ask func(t *testing.T, base *http.Transport) error) {
	t.Helper()
	attempttest.Run(t, attempttest.Sender{
		Side: attempt.Side{Name: where}, Attempts: remote.Attempts,
		Send: func(t *testing.T, base *http.Transport) error {
			t.Helper()
			err := ask(t, base)
			if code := auth.CodeOf(err); code != auth.CodeUnreachable && code != auth.CodeEndpointRefused {
				t.Errorf("code %s: %v", code, err)
			}
			return err
		},
	})
}

// RetryAfter checks that an error's RetryAfter is the time in the Retry-After header, but at most
// 15 minutes. The function ask must call a server that throttles with the given header.
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

// Attempt is a server's answer, and the number of requests that a call makes if it always gets this
// answer.
type Attempt struct {
	Name     string
	Handler  http.HandlerFunc
	Requests int32
}

// Attempts checks that a call repeats its requests only if another request may succeed. The
// function ask must call a server with the given handler.
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

// DoesNotPrint checks that neither fmt nor JSON prints the secrets of a token. Each secret of the
// token must contain the argument secret, so that DoesNotPrint can find it in the output. %v, %#v
// and JSON must print the argument text.
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

// Asker makes a provider with the given allowed hosts and denied addresses, and asks it for a
// token.
type Asker func(t *testing.T, allow endpoint.Allowed, deny endpoint.CIDRs, opts ...auth.Option) error

// TenantProxies checks which addresses a tenant's proxy may have. It also checks that a proxy which
// pretends to be the cloud gets no proof. TenantProxies sets r.Base.Proxy to nil. Then the provider
// reaches the local cloud only through the tenant's proxy.
func (r *Rig) TenantProxies(t *testing.T, ask Asker) {
	t.Helper()
	r.Base.Proxy = nil
	if err := ask(t, r.Allow, endpoint.CIDRs{}, auth.WithProxyURL(r.Proxy)); err != nil {
		t.Errorf("a listed proxy: %v", err)
	}
	// A proxy with an address on loopback or inside the cluster is refused.
	private := &url.URL{Scheme: "http", Host: "10.96.0.1:3128"}
	for proxy, want := range map[*url.URL]string{r.Proxy: "loopback", private: "in --deny-cidrs"} {
		err := ask(t, endpoint.Allowed{}, endpoint.CIDRs{}, auth.WithProxyURL(proxy))
		e, ok := errors.AsType[*auth.Error](err)
		if !ok || e.Code != auth.CodeEndpointRefused || e.Temporary() || !strings.Contains(e.Error(), want) ||
			!strings.Contains(e.Fix, "--allowed-endpoint-hosts") {
			t.Errorf("%s: %v", proxy.Host, err)
		}
	}
	var proofs atomic.Int32
	// The impostor terminates TLS with its own certificate.
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
