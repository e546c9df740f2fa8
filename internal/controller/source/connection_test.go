package source

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/transport"
)

const (
	cloudHost   = "cloud.example.com"
	storageHost = "storage.example.com"
)

func TestConnectionKeepsTheCredential(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	base := server.Client().Transport.(*http.Transport).Clone()
	base.TLSClientConfig.ServerName = "example.com" // of httptest's certificate
	pool, err := transport.NewPool(transport.Options{Base: base, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c := &Connection{host: cloudHost, bound: true, pool: pool}
	t.Cleanup(c.Close)
	send := func(target string, authorization string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := c.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	for target, allowed := range map[string]bool{
		"https://" + cloudHost + "/v2/":                    true,
		"https://" + strings.ToUpper(cloudHost) + ":443/x": true,
		"https://" + storageHost + "/v2/":                  false,
		"https://" + cloudHost + ":8443/v2/":               false,
		"http://" + cloudHost + "/v2/":                     false,
	} {
		err := send(target, "Basic abc")
		if _, detour := errors.AsType[*DetourError](err); detour == allowed {
			t.Errorf("%s: %v", target, err)
		}
	}
	if err := send("https://"+storageHost+"/v2/", ""); err != nil {
		t.Errorf("without a credential: %v", err)
	}
}

func TestSameHost(t *testing.T) {
	for _, c := range []struct {
		target, hostport string
		want             bool
	}{
		{"https://a.example/x", "a.example", true},
		{"https://a.example:443/x", "a.example", true},
		{"https://A.example/x", "a.example:443", true},
		{"http://a.example/x", "a.example:80", true},
		{"http://a.example:5000/x", "a.example:5000", true},
		{"https://[::1]/x", "[::1]:443", true},
		{"https://a.example:444/x", "a.example", false},
		{"https://a.example.evil/x", "a.example", false},
		{"https://b.example/x", "a.example", false},
	} {
		u, err := url.Parse(c.target)
		if err != nil {
			t.Fatal(err)
		}
		if got := sameHost(u, c.hostport); got != c.want {
			t.Errorf("%s and %s: %v", c.target, c.hostport, got)
		}
	}
}
