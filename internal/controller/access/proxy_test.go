package access

import (
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
)

// TestConnectionNamesItsProxy checks that Connection.Proxy names the setting that configures the
// proxy. Errors can then say which setting to correct.
func TestConnectionNamesItsProxy(t *testing.T) {
	behind := func(request *http.Request) (*url.URL, error) {
		if request.URL.Hostname() == "direct.example.com" || request.URL.Hostname() == "plain.example.com" && request.URL.Scheme == "https" {
			return nil, nil // a nil URL means to net/http that there is no proxy
		}
		return &url.URL{Scheme: "http", Host: "proxy.example.com:3128"}, nil
	}
	pool, err := transport.NewPool(transport.Options{
		Base: &http.Transport{Proxy: behind}, CheckTarget: endpoint.Guard{}.CheckTarget, Dial: (&net.Dialer{}).DialContext,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	own := &url.URL{Scheme: "http", Host: "proxy.tenant.example"}
	for want, connections := range map[string][]*Connection{
		"":                             {{host: "direct.example.com"}, {host: "direct.example.com", insecure: true}, {host: "plain.example.com"}},
		"spec.proxySecretRef":          {{host: "direct.example.com", proxy: own}, {host: cloudHost, proxy: own}},
		"the controller's HTTPS_PROXY": {{host: cloudHost}, {host: cloudHost, insecure: true}},
		"the controller's HTTP_PROXY":  {{host: "plain.example.com", insecure: true}},
	} {
		for _, c := range connections {
			c.pool = pool
			if got := c.Proxy(); got != want {
				t.Errorf("%s, insecure %t: %q, want %q", c.host, c.insecure, got, want)
			}
		}
	}
}
