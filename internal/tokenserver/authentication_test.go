package tokenserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/port"
)

// TestOnlyTheAPIServerCalls checks that a caller gets a token only through the API server. The API
// server must name the caller in the headers.
func TestOnlyTheAPIServerCalls(t *testing.T) {
	r := newRig(t, banana())
	alice := http.Header{"X-Remote-User": {"alice"}, "X-Remote-Group": {"minters"}}
	const refusesHandshake = 0
	stranger := mustAuthority(t)
	for name, c := range map[string]struct {
		caller *caller
		code   int
	}{
		"the API server":                      {r.minter(t), http.StatusCreated},
		"no certificate":                      {r.call(t, r.proxies, "", alice), refusesHandshake},
		"a certificate of another authority":  {r.call(t, stranger, frontName, alice), refusesHandshake},
		"another name":                        {r.call(t, r.proxies, "kubelet", alice), refusesHandshake},
		"the API server, naming nobody":       {r.call(t, r.proxies, frontName, http.Header{"X-Remote-Group": {"minters"}}), http.StatusUnauthorized},
		"a bearer token":                      {r.call(t, r.proxies, "", http.Header{"Authorization": {"Bearer " + stubToken}}), refusesHandshake},
		"a certificate of one's own":          {r.call(t, r.proxies, "alice", http.Header{}), refusesHandshake},
		"nobody":                              {r.call(t, r.proxies, "", http.Header{}), refusesHandshake},
		"a caller without the right":          {r.call(t, r.proxies, frontName, http.Header{"X-Remote-User": {"bob"}}), http.StatusForbidden},
		"a caller who would act as a minter":  {r.call(t, r.proxies, frontName, http.Header{"X-Remote-User": {"bob"}, "Impersonate-User": {"alice"}, "Impersonate-Group": {"minters"}}), http.StatusForbidden},
		"anonymous, passed on":                {r.call(t, r.proxies, frontName, http.Header{"X-Remote-User": {"system:anonymous"}, "X-Remote-Group": {"system:unauthenticated"}}), http.StatusForbidden},
		"a header that is another's username": {r.call(t, r.proxies, "", http.Header{"X-Remote-User": {"system:kube-aggregator"}, "X-Remote-Group": {"system:masters"}}), refusesHandshake},
	} {
		if got := c.caller.mint(t, `{}`); got.code != c.code || strings.Contains(got.body, stubToken) != (c.code == http.StatusCreated) {
			t.Errorf("%s: %d, %s; want %d", name, got.code, got.body, c.code)
		}
	}
	if len(r.signer.claims) != 1 {
		t.Errorf("%d tokens are made, want 1", len(r.signer.claims))
	}
}

// TestFloodOfStrangers opens more connections than the port may have, from strangers: clients
// without a certificate. The API server's connection must stay open. The server must not answer a
// request from a stranger.
func TestFloodOfStrangers(t *testing.T) {
	r := newRig(t, banana())
	alice := r.minter(t)
	trace := func() (reused bool) {
		hooks := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { reused = got.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), hooks), http.MethodGet, "https://"+r.address+"/apis", nil)
		must.Succeed(t, err)
		request.Header = alice.header.Clone()
		response, err := alice.http.Do(request)
		must.Succeed(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		must.Succeed(t, err)
		must.Succeed(t, response.Body.Close())
		return reused
	}
	trace()
	var dialer net.Dialer
	var strangers []net.Conn
	for range 2 * port.MaxConnections {
		stranger, err := dialer.DialContext(t.Context(), "tcp", r.address)
		must.Succeed(t, err)
		defer stranger.Close()
		strangers = append(strangers, stranger)
	}
	// Wait until the server closes the last connection of the older half. The server closes this
	// connection when it accepts the last stranger. So the server has accepted all strangers.
	if n, err := strangers[port.MaxConnections-1].Read(make([]byte, 1)); n > 0 || err == nil {
		t.Fatal("an idle stranger reads", n, err)
	}
	if !trace() {
		t.Fatal("strangers have closed the connection of the API server")
	}
	fresh := r.minter(t)
	fresh.mint(t, `{}`).request(t)

	// A client without a certificate gets a TLS alert instead of an answer to its request.
	stranger, err := tls.Dial("tcp", r.address, &tls.Config{RootCAs: r.roots, ServerName: serverHost, MinVersion: tls.VersionTLS12})
	must.Succeed(t, err)
	defer stranger.Close()
	_, _ = io.WriteString(stranger, "GET /apis HTTP/1.1\r\nHost: a\r\n\r\n")
	if n, err := stranger.Read(make([]byte, 1)); n > 0 || err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("a client without certificate reads %d bytes, %v", n, err)
	}
}

// TestHandshake checks with which client certificates a TLS handshake succeeds.
func TestHandshake(t *testing.T) {
	r := newRig(t)
	other := mustAuthority(t)
	for _, c := range []struct {
		what    string
		by      authority
		name    string
		version uint16
		ok      bool
	}{
		{"the front proxy", r.proxies, frontName, tls.VersionTLS13, true},
		{"the front proxy, TLS 1.2", r.proxies, frontName, tls.VersionTLS12, true},
		{"no certificate", r.proxies, "", tls.VersionTLS13, false},
		{"no certificate, TLS 1.2", r.proxies, "", tls.VersionTLS12, false},
		{"another name", r.proxies, "kubelet", tls.VersionTLS13, false},
		{"another name, TLS 1.2", r.proxies, "kubelet", tls.VersionTLS12, false},
		{"another CA", other, frontName, tls.VersionTLS13, false},
		{"another CA, TLS 1.2", other, frontName, tls.VersionTLS12, false},
	} {
		client := r.call(t, c.by, c.name, http.Header{})
		client.http.Transport.(*http.Transport).TLSClientConfig.MaxVersion = c.version
		if got := client.do(t, http.MethodGet, "/apis", "").code; (got == http.StatusUnauthorized) != c.ok || !c.ok && got != 0 {
			t.Errorf("%s: the answer is %d; the handshake should succeed: %v", c.what, got, c.ok)
		}
	}
	r.publish(t, func(c *corev1.ConfigMap) { c.Data["requestheader-allowed-names"] = `[]` })
	r.eventually(t, "no name is allowed", func() bool {
		return r.call(t, r.proxies, frontName, http.Header{}).do(t, http.MethodGet, "/apis", "").code == 0
	})
}

// TestNoLoopbackClient checks that the server has no loopback client. By default, a server has a
// loopback client in the group system:masters. It also has a separate certificate for the server
// name that this client uses.
func TestNoLoopbackClient(t *testing.T) {
	r := newRig(t)
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName: server.LoopbackClientServerNameOverride, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection verifies the certificate
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: r.roots, DNSName: serverHost})
			return err
		},
	}}
	connection, err := dialer.DialContext(t.Context(), "tcp", r.address)
	must.Succeed(t, err)
	_ = connection.Close()
}

// TestAllowedNamesAreRequired checks that the server trusts no proxy CA unless the ConfigMap lists
// the allowed client names. Without this list, every client of the CA could act as any caller. The
// list may be missing at the start, or may be withdrawn later.
func TestAllowedNamesAreRequired(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.ConfigMap)
		says   string
	}{
		"no names":              {func(c *corev1.ConfigMap) { c.Data["requestheader-allowed-names"] = `[]` }, "--requestheader-allowed-names"},
		"names are not there":   {func(c *corev1.ConfigMap) { delete(c.Data, "requestheader-allowed-names") }, "--requestheader-allowed-names"},
		"names cannot be read":  {func(c *corev1.ConfigMap) { c.Data["requestheader-allowed-names"] = `x` }, configName},
		"no header of the user": {func(c *corev1.ConfigMap) { c.Data["requestheader-username-headers"] = `[]` }, "--requestheader-username-headers"},
		"no CA":                 {func(c *corev1.ConfigMap) { delete(c.Data, configCA) }, "--requestheader-client-ca-file"},
		"no ConfigMap":          {func(c *corev1.ConfigMap) { c.Name = "another" }, "extension-apiserver-authentication-reader"},
	} {
		config := frontConfig(t, mustAuthority(t))
		c.change(config)
		if _, err := newFrontProxy(t.Context(), kubefake.NewClientset(config)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want an error with %q", name, err, c.says)
		}
	}

	r := newRig(t, banana())
	alice := r.minter(t)
	alice.mint(t, `{}`).request(t)
	r.publish(t, func(c *corev1.ConfigMap) { c.Data["requestheader-allowed-names"] = `[]` })
	r.eventually(t, "names are withdrawn", func() bool { return alice.mint(t, `{}`).code == http.StatusUnauthorized })
	r.publish(t, func(c *corev1.ConfigMap) { c.Data["requestheader-allowed-names"] = `["` + frontName + `"]` })
	r.eventually(t, "names are back", func() bool { return alice.mint(t, `{}`).code == http.StatusCreated })
	r.publish(t, func(c *corev1.ConfigMap) { c.Data["requestheader-allowed-names"] = `["another"]` })
	r.eventually(t, "another name counts", func() bool { return alice.mint(t, `{}`).code == http.StatusUnauthorized })
}

// TestNamesAreWithdrawnMeanwhile empties the list of allowed client names while a request is
// checked. The server must then refuse every client. The library that authenticates requests does
// not: if the list is empty, it accepts every name.
func TestNamesAreWithdrawnMeanwhile(t *testing.T) {
	proxies := mustAuthority(t)
	config := frontConfig(t, proxies)
	client := kubefake.NewClientset(config)
	front, err := newFrontProxy(t.Context(), client)
	must.Succeed(t, err)
	must.Succeed(t, front.start(t.Context()))
	front.roots = func() (x509.VerifyOptions, bool) {
		withdrawn := config.DeepCopy()
		withdrawn.Data["requestheader-allowed-names"] = `[]`
		if _, err := client.CoreV1().ConfigMaps(configNamespace).Update(t.Context(), withdrawn, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		if err := front.headers.RunOnce(t.Context()); err != nil {
			t.Error(err)
		}
		return front.ca.VerifyOptions()
	}
	leaf, err := x509.ParseCertificate(clientCert(t, proxies, "kubelet").Certificate[0])
	must.Succeed(t, err)
	request := (&http.Request{
		Header: http.Header{"X-Remote-User": {"alice"}}, TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}},
	}).WithContext(t.Context())
	if response, ok, err := front.authenticator().AuthenticateRequest(request); ok {
		t.Errorf("another name is %v, %v", response.User, err)
	}
}

// TestLastProxy checks when the certificate of the front proxy needs no new verification. For the
// duration proxyMemory after a verification, the same certificate needs none if
//   - the CA is the same;
//   - the certificate's name is still allowed; and
//   - the certificate has not expired.
func TestLastProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxies := mustAuthority(t)
		connection := func(name string) *tls.ConnectionState {
			leaf, err := x509.ParseCertificate(clientCert(t, proxies, name).Certificate[0])
			must.Succeed(t, err)
			return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
		}
		roots, names, front := x509.NewCertPool(), []string{frontName}, connection(frontName)
		var last lastProxy
		if last.is(front, roots, names) {
			t.Error("a certificate counts that was never verified")
		}
		last.remember(front, roots)
		for what, c := range map[string]struct {
			state *tls.ConnectionState
			roots *x509.CertPool
			names []string
			is    bool
		}{
			"the same":                           {front, roots, names, true},
			"no TLS":                             {nil, roots, names, false},
			"no certificate":                     {&tls.ConnectionState{}, roots, names, false},
			"another certificate of the name":    {connection(frontName), roots, names, false},
			"the CA was published anew":          {front, x509.NewCertPool(), names, false},
			"the name is no longer allowed":      {front, roots, []string{"another"}, false},
			"a certificate of another, same CA":  {connection("another"), roots, []string{"another"}, false},
			"nobody is allowed":                  {front, roots, nil, false},
			"the name is one of several allowed": {front, roots, []string{"another", frontName}, true},
		} {
			if got := last.is(c.state, c.roots, c.names); got != c.is {
				t.Errorf("%s: %v", what, got)
			}
		}
		if time.Sleep(proxyMemory); last.is(front, roots, names) {
			t.Error("a certificate is remembered for too long")
		}
		last.remember(front, roots)
		time.Sleep(time.Until(front.PeerCertificates[0].NotAfter) - proxyMemory/2)
		last.remember(front, roots)
		if time.Sleep(proxyMemory / 2); last.is(front, roots, names) {
			t.Error("a certificate that has expired is remembered")
		}
	})
}

// TestProxyCARotates checks that a new CA of the API server is trusted without a restart.
func TestProxyCARotates(t *testing.T) {
	r := newRig(t, banana())
	old := r.minter(t)
	old.mint(t, `{}`).request(t)
	r.proxies = mustAuthority(t)
	r.publish(t, func(c *corev1.ConfigMap) { c.Data[configCA] = string(encodeCert(r.proxies.cert.Raw)) })
	fresh := r.minter(t)
	r.eventually(t, "the new CA counts", func() bool { return fresh.mint(t, `{}`).code == http.StatusCreated })
	if got := old.mint(t, `{}`); got.code != http.StatusUnauthorized {
		t.Errorf("a certificate of the former CA gets %d", got.code)
	}
}

// publish changes the ConfigMap with the API server's settings for forwarded requests.
func (r *rig) publish(t *testing.T, change func(*corev1.ConfigMap)) {
	t.Helper()
	maps := r.kube.CoreV1().ConfigMaps(configNamespace)
	config, err := maps.Get(t.Context(), configName, metav1.GetOptions{})
	must.Succeed(t, err)
	change(config)
	if _, err := maps.Update(t.Context(), config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) eventually(t *testing.T, what string, look func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !look() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not after a minute; the log is\n%s", what, r.log)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
