package access_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Hosts of the tests' network. httptest's certificate is valid for these names.
const (
	homeHost    = "home.example.com"
	storageHost = "storage.example.com"
	plainHost   = "plain.example.com:80"
)

// door is a registry with one repository. A request needs every credential whose field is true:
// basic, bearer or certificate.
type door struct {
	basic, bearer, certificate bool

	strays []string // credentials that reached storageHost, which must get none
}

func (d *door) home(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	switch {
	case d.basic && (user != "robot" || password != "hunter2"):
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
	case d.bearer && r.Header.Get("Authorization") != "Bearer a.jwt",
		d.certificate && (r.TLS == nil || len(r.TLS.PeerCertificates) != 1):
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/v2/app/tags/list":
		http.Redirect(w, r, "https://"+storageHost+r.URL.Path, http.StatusTemporaryRedirect)
	default:
		_, _ = io.WriteString(w, "{}")
	}
}

func (d *door) storage(w http.ResponseWriter, r *http.Request) {
	if shown := r.Header.Get("Authorization"); shown != "" {
		d.strays = append(d.strays, shown)
	}
	if len(r.TLS.PeerCertificates) > 0 {
		d.strays = append(d.strays, "certificate")
	}
	_, _ = io.WriteString(w, `{"name":"app","tags":["1.0.0"]}`)
}

// connect makes a connection to the registry d, at any of its host names.
func (d *door) connect(t *testing.T, host string) *access.Connection {
	t.Helper()
	return d.connectAs(t, host, spec.Identity{})
}

func (d *door) connectAs(t *testing.T, host string, identity spec.Identity) *access.Connection {
	t.Helper()
	network := controllertest.NewNetwork(t, map[string]http.Handler{homeHost: http.HandlerFunc(d.home), storageHost: http.HandlerFunc(d.storage)})
	plain := httptest.NewServer(http.HandlerFunc(d.home))
	t.Cleanup(plain.Close)
	network.Addresses[plainHost] = plain.Listener.Addr().String()
	reach := &access.Access{Transports: network.Pool(t, nil)}
	conn, err := reach.Connect(t.Context(), access.Call{Identity: identity}, host)
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func credentials(t *testing.T) (basic *access.Basic, bearer auth.Secret, certificate *tls.Certificate) {
	t.Helper()
	pem, key := controllertest.Pair(t, "client")
	pair, err := tls.X509KeyPair([]byte(pem), []byte(key))
	must.Succeed(t, err)
	return &access.Basic{User: "robot", Password: auth.NewSecret("hunter2")}, auth.NewSecret("a.jwt"), &pair
}

// A registry's client works with each sort of credential. Storage to which the registry redirects
// gets no credential.
func TestCredentialsAtARegistry(t *testing.T) {
	basic, bearer, certificate := credentials(t)
	for name, c := range map[string]struct {
		door  door
		shown access.Credential
		taken bool
	}{
		"nobody":                         {door{}, access.Credential{}, true},
		"nobody at a door":               {door{bearer: true}, access.Credential{}, false},
		"a user and a password":          {door{basic: true}, access.Credential{Basic: basic}, true},
		"a bearer":                       {door{bearer: true}, access.Credential{Bearer: bearer}, true},
		"a wrong bearer":                 {door{bearer: true}, access.Credential{Bearer: auth.NewSecret("other")}, false},
		"a certificate":                  {door{certificate: true}, access.Credential{Certificate: certificate}, true},
		"a certificate and a password":   {door{basic: true, certificate: true}, access.Credential{Basic: basic, Certificate: certificate}, true},
		"a certificate and a bearer":     {door{bearer: true, certificate: true}, access.Credential{Bearer: bearer, Certificate: certificate}, true},
		"a bearer without a certificate": {door{bearer: true, certificate: true}, access.Credential{Bearer: bearer}, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := c.door.connect(t, homeHost)
			repository, err := oci.ParseImage(homeHost + "/app")
			must.Succeed(t, err)
			options := oci.Options{Transport: conn.As(access.Login{Credential: c.shown})}
			switch {
			case c.shown.Basic != nil:
				options.Auth = &authn.Basic{Username: c.shown.Basic.User, Password: c.shown.Basic.Password.Reveal()}
			case !c.shown.Bearer.IsZero():
				options.Auth = authn.FromConfig(authn.AuthConfig{RegistryToken: c.shown.Bearer.Reveal()})
			}
			client, err := oci.Connect(t.Context(), repository, options)
			var scan oci.Scan
			if err == nil {
				scan, err = client.Scan(t.Context(), oci.Exclusions{})
			}
			if (err == nil) != c.taken || c.taken && scan.Tags != 1 {
				t.Errorf("%v, %d tags", err, scan.Tags)
			}
			if len(c.door.strays) > 0 {
				t.Errorf("storage was shown %q", c.door.strays)
			}
		})
	}
}

// An https proxy on the way to the host does not get the client certificate.
func TestCertificateAtAProxy(t *testing.T) {
	const proxyHost = "proxy.example.com"
	_, _, certificate := credentials(t)
	for _, whose := range []string{"the tenant's", "the administrator's"} {
		d := &door{certificate: true}
		var tunnels http.Handler
		network := controllertest.NewNetwork(t, map[string]http.Handler{
			homeHost: http.HandlerFunc(d.home),
			proxyHost: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if len(r.TLS.PeerCertificates) > 0 {
					d.strays = append(d.strays, "certificate")
				}
				tunnels.ServeHTTP(w, r)
			}),
		})
		proxy := network.ServeProxy(t, "plain-proxy.example.com:80")
		tunnels = proxy
		base := network.Transport()
		call := access.Call{Object: auth.InvolvedObject{Namespace: "tenant-a"}}
		if whose == "the tenant's" {
			call.Identity.ProxySecretName = "proxy"
		} else {
			base.Proxy, base.DialContext = http.ProxyURL(&url.URL{Scheme: "https", Host: proxyHost}), network.Dial
		}
		pool, err := transport.NewPool(transport.Options{Base: base, Dial: network.Dial, CheckTarget: func(string) error { return nil }})
		must.Succeed(t, err)
		t.Cleanup(pool.Close)
		reach := &access.Access{Transports: pool, Live: fake.NewClientBuilder().WithObjects(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "proxy"}, Data: map[string][]byte{"address": []byte("https://" + proxyHost)},
		}).Build()}
		conn, err := reach.Connect(t.Context(), call, homeHost)
		must.Succeed(t, err)
		t.Cleanup(conn.Close)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+homeHost+"/v2/", http.NoBody)
		must.Succeed(t, err)
		resp, err := conn.As(access.Login{Credential: access.Credential{Certificate: certificate}}).RoundTrip(req)
		if err != nil {
			t.Fatalf("%s: %v", whose, err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || len(proxy.Tunnels()) != 1 || len(d.strays) > 0 {
			t.Errorf("%s: the host answers %d through %v, and the proxy was shown %q", whose, resp.StatusCode, proxy.Tunnels(), d.strays)
		}
	}
}

// A request with a client certificate needs TLS, unless the object allows plain HTTP. A request
// with a minted token in a header always needs TLS.
func TestCredentialsNeedTLS(t *testing.T) {
	_, _, certificate := credentials(t)
	minted, err := auth.ServiceAccount("tenant-a", "puller")
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		shown    access.Credential
		header   string
		identity spec.Identity
		refused  bool
	}{
		"certificate":           {shown: access.Credential{Certificate: certificate}, refused: true},
		"certificate, insecure": {shown: access.Credential{Certificate: certificate}, identity: spec.Identity{Insecure: true}},
		"a minted token":        {header: "Bearer a.jwt", identity: spec.Identity{Source: spec.Proof, Subject: minted}, refused: true},
		// The connection sends a stored token even without TLS. It leaves the check to the
		// service's client, which refuses plain HTTP unless the object allows it.
		"a stored token": {header: "Bearer a.jwt"},
		"nothing":        {},
	} {
		d := &door{}
		conn := d.connectAs(t, plainHost, c.identity)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+plainHost+"/v2/", http.NoBody)
		must.Succeed(t, err)
		if c.header != "" {
			req.Header.Set("Authorization", c.header)
		}
		resp, err := conn.As(access.Login{Credential: c.shown}).RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if _, detour := errors.AsType[*access.DetourError](err); detour != c.refused || err == nil && resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
	}
}

// Printing a credential does not show its secrets.
func TestCredentialsDoNotPrint(t *testing.T) {
	basic, bearer, _ := credentials(t)
	shown := fmt.Sprintf("%+v %#v", access.Login{Credential: access.Credential{Basic: basic, Bearer: bearer}}, basic)
	for _, secret := range []string{"hunter2", "a.jwt"} {
		if strings.Contains(shown, secret) {
			t.Errorf("it prints %s", shown)
		}
	}
}
