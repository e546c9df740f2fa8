package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// natsConfig lets each SPIFFE ID publish to one subject, which is the name of the ID's namespace.
const natsConfig = `tls { cert_file: %q, key_file: %q, ca_file: %q, verify_and_map: true }
authorization { users: [
  { user: %q, permissions: { publish: %q } }
  { user: %q, permissions: { publish: %q } }
] }
`

// TestTrustPage compares the configurations in docs/trust.md with those of the services in these
// tests.
func TestTrustPage(t *testing.T) {
	beside(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "trust.md"))
	must(t, "read the page", err)
	render := func(text string, values map[string]any) string {
		var out strings.Builder
		must(t, "write a configuration", template.Must(template.New("").Parse(text)).Execute(&out, values))
		return out.String()
	}
	const app = "spiffe://prod.example.com/ocirepositories/tenant-a/my-app"
	for language, want := range map[string]string{
		"apache": render(requireToken, map[string]any{
			"JWKS": "https://issuer.example.com/jwks", "Issuer": "https://issuer.example.com", "Audience": "registry.example.com",
			"Subjects": map[string]string{"tenant-a": "system:serviceaccount:tenant-a:tenant-a-sa"},
		}),
		"apacheconf": render(requireCertificate, map[string]any{"Authorities": "/spiffe/ca.pem", "Subjects": map[string]string{"tenant-a": app}}),
		"nats": fmt.Sprintf(natsConfig, "/tls/tls.crt", "/tls/tls.key", "/spiffe/ca.pem",
			app, "tenant-a", "spiffe://prod.example.com/ocirepositories/tenant-b/my-app", "tenant-b"),
	} {
		if block := "```" + language + "\n" + want + "```\n"; !strings.Contains(string(page), block) {
			t.Errorf("docs/trust.md does not have this block:\n%s", block)
		}
	}
}

// judgedByNATS presents certificates to NATS, whose users are SPIFFE IDs. Each object may publish
// to its own subject only.
func judgedByNATS(t *testing.T, w *spiffeWorld) {
	t.Helper()
	const name = "events"
	credential := v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate}
	own := w.newObject(t, productionNamespace, name, "oci://"+w.mutual+"/none", credential)
	stranger := w.newObject(t, productionNamespace, "stranger", "oci://"+w.mutual+"/none", credential)
	messages := w.startNATS(t, name)
	shown := w.certificate(t, own)
	for what, tt := range map[string]struct {
		shown   tls.Certificate
		subject string
		refusal string // empty if NATS accepts the message
	}{
		"own subject":            {shown, productionNamespace, ""},
		"other tenant's subject": {shown, stagingNamespace, "permissions violation"},
		"object without a user":  {w.certificate(t, stranger), productionNamespace, "authorization violation"},
		"foreign authority":      {w.foreign(t, id(productionNamespace, name)), productionNamespace, "tls"},
	} {
		err := w.publishMessage(messages, tt.subject, tt.shown)
		if tt.refusal == "" && err != nil || tt.refusal != "" && (err == nil || !strings.Contains(strings.ToLower(err.Error()), tt.refusal)) {
			t.Errorf("%s: %v, want %q", what, err, tt.refusal)
		}
	}
}

// startNATS starts a NATS server for the objects with this name in two namespaces. Each object may
// publish to the subject with the name of its namespace. startNATS returns the server's URL.
func (w *spiffeWorld) startNATS(t *testing.T, name string) (address string) {
	t.Helper()
	certificate, key, authorities := w.serverFiles(t)
	path := filepath.Join(t.TempDir(), "nats.conf")
	must(t, "write NATS's configuration", os.WriteFile(path, fmt.Appendf(nil, "listen: \"127.0.0.1:-1\"\n"+natsConfig, certificate, key, authorities,
		id(productionNamespace, name), productionNamespace, id(stagingNamespace, name), stagingNamespace), 0o600))
	options, err := server.ProcessConfigFile(path)
	must(t, "read NATS's configuration", err)
	options.NoSigs, options.NoLog = true, true
	messages, err := server.NewServer(options)
	must(t, "make a NATS server", err)
	go messages.Start()
	t.Cleanup(func() {
		messages.Shutdown()
		messages.WaitForShutdown()
	})
	if !messages.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	return messages.ClientURL()
}

// publishMessage publishes a message, and presents a certificate if one is given. It returns NATS's
// error, or nil if NATS accepted the message.
func (w *spiffeWorld) publishMessage(address, subject string, shown ...tls.Certificate) error {
	conn, err := nats.Connect(address, nats.Secure(w.showing(shown...)), nats.NoReconnect(),
		// Ignore the error here: LastError returns it below.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Publish(subject, []byte("deployed")); err != nil {
		return err
	}
	// The server answers in order, so a refusal arrives before Flush returns.
	if err := conn.Flush(); err != nil {
		return err
	}
	return conn.LastError()
}

// judgedByKubernetes presents JWT-SVIDs to the API server of the shared cluster, which trusts the
// SPIFFE issuer by structured authentication.
func judgedByKubernetes(t *testing.T, w *spiffeWorld) {
	t.Helper()
	for _, tt := range []struct{ name, audience, user string }{
		{"reader", clusterAudience, "svid:" + id(productionNamespace, "reader")},
		// Keep this row last. By then, the API server trusts the issuer, so only the audience is
		// wrong.
		{"elsewhere", "https://elsewhere.example.com", ""},
	} {
		o := w.newObject(t, productionNamespace, tt.name, "oci://"+spiffeRegistry+"/none",
			v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeJWT, Audiences: []string{tt.audience}})
		answer, err := w.request(t.Context(), controllerUser, o, tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: o.UID})
		must(t, "get an SVID", err)
		if tt.user != "" {
			awaitTrust(t, answer.Status.Token, tt.user)
		} else if user, err := whoIs(t.Context(), world, answer.Status.Token); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s is taken for %q: %v", tt.name, user, err)
		}
		if user, err := whoIs(t.Context(), w.Cluster, answer.Status.Token); !apierrors.IsUnauthorized(err) {
			t.Errorf("the own cluster takes %s for %q: %v", tt.name, user, err)
		}
	}
}

// secret returns the Secret data that cert-manager writes for an authority.
func (a *authority) secret(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	must(t, "write a key", err)
	return map[string][]byte{
		corev1.TLSCertKey: a.pem, corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}
