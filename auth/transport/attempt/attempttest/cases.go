package attempttest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// patience is how long a connection waits for an answer that must come, even on a busy machine.
// brief is how long a connection waits for an answer that never comes.
const (
	patience = 30 * time.Second
	brief    = 200 * time.Millisecond
)

// testCase is one cause of failure: the expected error text, and whether another attempt follows.
type testCase struct {
	name  string
	spoil func(t *testing.T, base *http.Transport)
	says  string
	// fix is the advice that the error must contain. If the sender has a field for certificates
	// (Side.Certificates), fixByField is the advice instead. If fixByField is empty, fix is the
	// advice for all senders. In both texts, the test replaces NAME by the server's name.
	fix, fixByField string
	again           bool
}

func cases() []testCase {
	const reach = "check that NAME can be reached from the controller"
	const reachProxy = "check the proxy's URL and certificate, and that the controller can reach the proxy"
	const inPlace = "check what answers in its place"
	return []testCase{
		{"name does not exist", resolving(rcodeNoSuchName), "the host's name does not exist", "the controller's DNS knows the name", "", false},
		{"resolver fails", resolving(rcodeServerFailure), "the host's name could not be resolved", "check the DNS servers", "", true},
		{"resolver is silent", resolving(silent), "the host's name could not be resolved in time", "check the DNS servers", "", false},
		{"closed port", closedPort, "the connection was refused", reach, "", true},
		{"hanging handshake", hangingHandshake, "no answer in time", reach, "", false},
		{"hanging answer", connectedAndHanging, "no answer in time", reach, "", false},
		{"close", answering(hangUp), "the connection was closed", reach, "", true},
		{"reset", answering(reset), "the connection was closed", reach, "", true},
		{"close instead of an answer", serving(trusted, noAnswer), "the connection was closed", reach, "", true},
		{"guard", guarded, `address not allowed: the address of "localhost" is loopback`, "--allowed-endpoint-hosts", "", false},
		{
			"untrusted certificate", serving(untrusted, noAnswer), "the certificate is signed by an unknown authority",
			"check which server answers as NAME, or have the administrator add its CA", "set spec.certSecretRef to the CA of NAME", false,
		},
		{"certificate of another host", serving(otherHost, noAnswer), "the certificate is for another host", inPlace, "", false},
		{"expired certificate", serving(expired, noAnswer), "the certificate has expired or is not yet valid", "renew the certificate of NAME", "", false},
		{
			"client certificate missing", withoutClientCertificate, "the other side refused the TLS handshake",
			"check which server answers as NAME", "put one that it accepts into spec.certSecretRef", false,
		},
		{"broken handshake", answering(nonsense), "the TLS handshake failed", "check that NAME speaks TLS 1.2 or later", "", false},
		{
			"no TLS", answering(plain), "the other side does not speak TLS",
			"check which server answers as NAME", "give NAME a certificate, or set spec.insecure, which needs provider generic", false,
		},
		{"proxy answers 403", proxyAnswering(403), "the proxy answered HTTP 403 Forbidden", "have the proxy allow NAME", "", false},
		{"proxy answers 407", proxyAnswering(407), "the proxy answered HTTP 407 Proxy Authentication Required", "correct the proxy's user and password", "", false},
		{"proxy answers 502", proxyAnswering(502), "the proxy answered HTTP 502 Bad Gateway", "check that the proxy can reach NAME", "", true},
		{"proxy answers 405", proxyAnswering(405), "the proxy answered HTTP 405 Method Not Allowed", "accepts CONNECT requests to NAME", "", false},
		{"proxy closed", through("http", closedPort), "the proxy cannot be reached: the connection was refused", reachProxy, "", true},
		{
			"proxy untrusted", through("https", serving(untrusted, noAnswer)),
			"the proxy cannot be reached: the certificate is signed by an unknown authority", reachProxy, "", false,
		},
		{
			"proxy not allowed", through("http", guarded),
			`the proxy cannot be reached: address not allowed: the address of "localhost" is loopback`, "--allowed-endpoint-hosts", "", false,
		},
	}
}

// closedPort makes all connections go to port 1, where no server listens. A port that a listener
// has left could already belong to another test. The system never assigns port 1 to a listener.
func closedPort(t *testing.T, base *http.Transport) {
	t.Helper()
	base.DialContext = dialTo("127.0.0.1:1")
}

// answering returns a function that starts a server without TLS, and makes a transport connect to
// it. The server calls do for each connection.
func answering(do func(net.Conn)) func(*testing.T, *http.Transport) {
	return func(t *testing.T, base *http.Transport) {
		t.Helper()
		base.DialContext = dialTo(accept(t, do))
	}
}

// serving returns a function that starts a server with TLS, and makes a transport connect to it.
// The function then lets config change the transport's TLS settings.
func serving(config func(*tls.Config), handler http.HandlerFunc) func(*testing.T, *http.Transport) {
	return func(t *testing.T, base *http.Transport) {
		t.Helper()
		serve(t, base, handler, nil)
		config(base.TLSClientConfig)
	}
}

func hangingHandshake(t *testing.T, base *http.Transport) {
	t.Helper()
	answering(hang)(t, base)
	base.TLSHandshakeTimeout = brief
}

func connectedAndHanging(t *testing.T, base *http.Transport) {
	t.Helper()
	serving(trusted, hangingAnswer)(t, base)
	base.ResponseHeaderTimeout = brief
}

func trusted(*tls.Config) {}

func untrusted(c *tls.Config) { c.RootCAs = x509.NewCertPool() }

func otherHost(c *tls.Config) { c.ServerName = "other.example.org" }

func expired(c *tls.Config) {
	c.Time = func() time.Time { return time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) }
}

// withoutClientCertificate starts a server that requires a client certificate. In TLS 1.2 the
// client sees the refusal during the handshake. In TLS 1.3 the client is already sending its
// request when the refusal arrives. Then net/http may report that the request could not be sent,
// without the reason. So the server uses TLS 1.2.
func withoutClientCertificate(t *testing.T, base *http.Transport) {
	t.Helper()
	//nolint:gosec // a test's own server
	config := &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}
	serve(t, base, noAnswer, config)
}

// guarded makes base dial localhost for every host, through a zero [endpoint.Guard]. The guard
// refuses loopback addresses, so every dial fails.
func guarded(t *testing.T, base *http.Transport) {
	t.Helper()
	_, port, err := net.SplitHostPort(listen(t).Addr().String())
	must.Succeed(t, err)
	base.DialContext = redirect(endpoint.Guard{}.DialContext(&net.Dialer{}), "localhost:"+port)
}

// through returns a function that sets a proxy with this scheme, and then calls spoil.
func through(scheme string, spoil func(*testing.T, *http.Transport)) func(*testing.T, *http.Transport) {
	return func(t *testing.T, base *http.Transport) {
		t.Helper()
		base.Proxy = proxy(scheme)
		spoil(t, base)
	}
}

// proxyAnswering returns a function that starts a proxy, and makes a transport use it. The proxy
// answers CONNECT with this status and with strangersWords.
func proxyAnswering(status int) func(*testing.T, *http.Transport) {
	return through("http", answering(func(conn net.Conn) { refuseConnect(conn, status) }))
}
