package kubeconfig_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/kubeconfig"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// file returns a kubeconfig file with the fields of its cluster and of its user.
func file(cluster, user string) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: prod, user: me, namespace: apps}}]\n" +
		"clusters: [{name: prod, cluster: {" + cluster + "}}]\nusers: [{name: me, user: {" + user + "}}]\n"
}

// data is no certificate and no key.
var data = base64.StdEncoding.EncodeToString([]byte("x"))

func TestParse(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.of.the.program:3128")
	certificate, key := keyPair(t)
	_, otherKey := keyPair(t)
	const server, token = "server: 'https://api.example.com:6443/k8s'", "token: s3cret"
	for _, test := range []struct {
		name, content string
		field, says   string // both empty if the file is accepted
	}{
		{"token", file(server, token), "", ""},
		{"certificate", file(server, "client-certificate-data: "+certificate+", client-key-data: "+key), "", ""},
		{"password", file(server, "username: me, password: s3cret"), "", ""},
		{"authority and name", file(server+", tls-server-name: api, certificate-authority-data: "+certificate, token), "", ""},
		{"proxy", file(server+", proxy-url: 'http://proxy.example.com:3128'", token), "", ""},
		{"JSON", `{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"p","user":"u"}}],"clusters":[{"name":"p","cluster":{"server":"https://a"}}],"users":[{"name":"u","user":{"token":"s3cret"}}]}`, "", ""},

		{"program", file(server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/s3cret}"), `users["me"].user.exec`, "no program"},
		{"plugin", file(server, "auth-provider: {name: gcp}"), `users["me"].user.auth-provider`, "no plugin"},
		{"program beside a token", file(server, token+", exec: {apiVersion: client.authentication.k8s.io/v1, command: a}"), `users["me"].user.exec`, "no program"},
		{"file with a token", file(server, "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"), `users["me"].user.tokenFile`, "paths are refused"},
		{"file beside a token", file(server, token+", tokenFile: /a"), `users["me"].user.tokenFile`, "paths are refused"},
		{"file with a certificate", file(server, "client-certificate: /a, client-key-data: "+data), `users["me"].user.client-certificate`, "paths are refused"},
		{"file with a key", file(server, "client-certificate-data: "+data+", client-key: /a"), `users["me"].user.client-key`, "paths are refused"},
		{"file with an authority", file(server+", certificate-authority: /a", token), `clusters["prod"].cluster.certificate-authority`, "paths are refused"},
		{"no check of the server", file(server+", insecure-skip-tls-verify: true", token), `clusters["prod"].cluster.insecure-skip-tls-verify`, "verified servers only"},
		{"another user", file(server, token+", as: admin"), `users["me"].user.as`, "act as itself"},
		{"another user ID", file(server, token+", as-uid: a"), `users["me"].user.as`, "act as itself"},
		{"another group", file(server, token+", as-groups: [system:masters]"), `users["me"].user.as`, "act as itself"},
		{"other fields of a user", file(server, token+", as-user-extra: {a: [b]}"), `users["me"].user.as`, "act as itself"},
		{"no TLS", file("server: 'http://api.example.com'", token), `clusters["prod"].cluster.server`, "no address"},
		{"no server", file("", token), `clusters["prod"].cluster.server`, "no address"},
		{"user in the address", file("server: 'https://me:s3cret@api.example.com'", token), `clusters["prod"].cluster.server`, "no address"},
		{"query in the address", file("server: 'https://api.example.com?a'", token), `clusters["prod"].cluster.server`, "no address"},
		{"file as a proxy", file(server+", proxy-url: 'file:///a'", token), `clusters["prod"].cluster.proxy-url`, "no address"},
		{"no credential", file(server, ""), `users["me"].user.token`, "no credential"},
		{"key without a certificate", file(server, token+", client-key-data: "+data), `users["me"].user.client-key-data`, "belong together"},
		{"token and password", file(server, token+", username: me, password: s3cret"), `users["me"].user.token`, "either a token or a password"},
		{"authority that is no certificate", file(server+", certificate-authority-data: "+data, token), `clusters["prod"].cluster.certificate-authority-data`, "holds no certificate"},
		{"certificate that is none", file(server, "client-certificate-data: "+data+", client-key-data: "+key), `users["me"].user.client-certificate-data`, "holds no certificate"},
		{"key that is none", file(server, "client-certificate-data: "+certificate+", client-key-data: "+data), `users["me"].user.client-certificate-data`, "client-key-data: "},
		{"key of another certificate", file(server, "client-certificate-data: "+certificate+", client-key-data: "+otherKey), `users["me"].user.client-certificate-data`, "are no pair"},
		{"address with another form", file("server: 'https://%ff.example'", token), `clusters["prod"].cluster.server`, "no address"},
		{"long address", file("server: 'https://"+strings.Repeat("a.", 200)+"b'", token), `clusters["prod"].cluster.server`, "no address"},
		{"proxy with TLS", file(server+", proxy-url: 'https://proxy.example.com'", token), `clusters["prod"].cluster.proxy-url`, "no address"},
		{"aliases", "a: &a [s3cret]\nb: [*a, *a]\n" + file(server, token), "", "an alias"},
		{"repeated keys", "{" + strings.Repeat("a,", 30000) + "a}", "", "a repeated key"},
		{"many values", "a: [" + strings.Repeat("a,", 30000) + "a]", "", "too many values"},
		{"keys that are no texts", "? [a]\n: b\n" + file(server, token), "", "too many values"},
		{"no context", "apiVersion: v1\nkind: Config\n", "current-context", `no context ""`},
		{"context without a cluster", "current-context: c\ncontexts: [{name: c, context: {cluster: a, user: b}}]\n", `contexts["c"].context.cluster`, `no cluster "a"`},
		{"context without a user", "current-context: c\ncontexts: [{name: c, context: {cluster: a, user: b}}]\nclusters: [{name: a, cluster: {server: 'https://a'}}]\n", `contexts["c"].context.user`, `no user "b"`},
		{"no YAML", "a:\n- s3cret\nb", "", "see line"},
		{"data that is no base64", file(server, "client-certificate-data: s3cret!, client-key-data: "+data), "", "no kubeconfig file"},
		{"another kind", "apiVersion: v1\nkind: Secret\n", "", "no kubeconfig file"},
		{"too large", file(server, token) + "#" + strings.Repeat("a", 64<<10), "", "65"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := kubeconfig.Parse([]byte(test.content), allowAll)
			if test.says == "" {
				must.Succeed(t, err)
				mustBeHarmless(t, config)
				return
			}
			failure, ok := errors.AsType[*kubeconfig.Error](err)
			if !ok || failure.Field != test.field || !strings.Contains(err.Error(), test.says) || failure.Fix == "" || config != nil {
				t.Errorf("error %v, want %q of %s", err, test.says, test.field)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error has a credential: %v", err)
			}
		})
	}
}

func allowAll(string) error { return nil }

// mustBeHarmless checks that a connection verifies its server, and uses no proxy but that of its file.
func mustBeHarmless(t *testing.T, c *kubeconfig.Connection) {
	t.Helper()
	if c.TLS.InsecureSkipVerify || !strings.HasPrefix(c.Config.Host, "https://") {
		t.Errorf("the connection does not verify the server %s", c.Config.Host)
	}
	proxy, err := c.Config.Proxy(httptest.NewRequest(http.MethodGet, "https://api.example.com", nil))
	if err != nil || proxy != nil && strings.Contains(proxy.Host, "proxy.of.the.program") {
		t.Errorf("the connection uses the program's own proxy %v, %v", proxy, err)
	}
}

// FuzzParse checks that each accepted file is harmless.
func FuzzParse(f *testing.F) {
	f.Add(file("server: 'https://a'", "token: b"))
	certificate, key := keyPair(f)
	f.Add(file("server: 'https://a', proxy-url: 'socks5://b'", "client-certificate-data: "+certificate+", client-key-data: "+key))
	f.Add(file("server: 'https://a'", "exec: {command: a}"))
	f.Fuzz(func(t *testing.T, content string) {
		config, err := kubeconfig.Parse([]byte(content), allowAll)
		if err == nil {
			mustBeHarmless(t, config)
		} else if _, ok := errors.AsType[*kubeconfig.Error](err); !ok {
			t.Errorf("error %v", err)
		}
	})
}

// keyPair returns a new certificate and its key, both as a kubeconfig file has them.
func keyPair(tb testing.TB) (certificate, key string) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(tb, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must.Succeed(tb, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	must.Succeed(tb, err)
	return encode("CERTIFICATE", signed), encode("PRIVATE KEY", encoded)
}

// encode returns a PEM block as a kubeconfig file has the block.
func encode(kind string, content []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
}
