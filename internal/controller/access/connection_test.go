package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	cloudHost   = "cloud.example.com"
	storageHost = "storage.example.com"
)

func TestConnectionKeepsTheCredential(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	base := server.Client().Transport.(*http.Transport).Clone()
	base.TLSClientConfig.ServerName = "example.com" // the name in httptest's certificate
	pool, err := transport.NewPool(transport.Options{Base: base, CheckTarget: endpoint.Guard{}.CheckTarget, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}})
	must.Succeed(t, err)
	t.Cleanup(pool.Close)
	c := &Connection{host: cloudHost, bound: true, pool: pool}
	t.Cleanup(c.Close)
	send := func(target string, authorization string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
		must.Succeed(t, err)
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := c.As(Login{}).RoundTrip(req)
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

// TestRoutesDiffer checks that Route differs if the proxy or the certificates differ. Tenants share
// cached facts about a host only if their routes are equal.
func TestRoutesDiffer(t *testing.T) {
	proxy, other := &url.URL{Scheme: "http", Host: "proxy.example.com", User: url.UserPassword("a", "1")},
		&url.URL{Scheme: "http", Host: "proxy.example.com", User: url.UserPassword("a", "2")}
	client := []tls.Certificate{{Certificate: [][]byte{[]byte("client")}}}
	routes := map[string]string{}
	for name, c := range map[string]*Connection{
		"plain":              {},
		"proxy":              {proxy: proxy},
		"proxy's other user": {proxy: other},
		"authority":          {certs: &certificates{authorities: authority("ca")}},
		"authority, proxy":   {proxy: proxy, certs: &certificates{authorities: authority("ca")}},
		"client":             {certs: &certificates{client: client}},
		"authority, client":  {certs: &certificates{authorities: authority("ca"), client: client}},
		"cut differently":    {certs: &certificates{authorities: authority("caclient")}},
	} {
		if before, ok := routes[c.Route()]; ok {
			t.Errorf("%s and %s have the same route", name, before)
		}
		routes[c.Route()] = name
	}
	same := &Connection{proxy: proxy, certs: &certificates{authorities: authority("ca")}}
	if routes[same.Route()] != "authority, proxy" {
		t.Error("equal ways have different routes")
	}
}

func authority(raw string) []*x509.Certificate {
	return []*x509.Certificate{{Raw: []byte(raw)}}
}
