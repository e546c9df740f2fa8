package tokenserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	serverHost = "lanyard-token-server.lanyard-system.svc"
	secretName = "lanyard-token-server-ca"
	frontName  = "front-proxy-client"
	spokeUsers = "system:serviceaccount:lanyard-spokes:"
)

// newClient returns a client of an API server in memory, with the objects in it.
func newClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, corev1.AddToScheme(scheme))
	must.Succeed(t, identityv1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&identityv1.KeyRing{}).Build()
}

func newCertificate(c client.Client) *Certificate {
	return &Certificate{
		Client: c, Secret: client.ObjectKey{Namespace: "lanyard-system", Name: secretName},
		Hosts: []string{serverHost}, Service: &APIService{Client: c},
	}
}

// frontConfig returns the ConfigMap in which an API server publishes its settings for forwarded
// requests.
func frontConfig(t *testing.T, proxies authority) *corev1.ConfigMap {
	t.Helper()
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: configNamespace, Name: configName},
		Data: map[string]string{
			"requestheader-client-ca-file":       string(encodeCert(proxies.cert.Raw)),
			"requestheader-allowed-names":        `["` + frontName + `"]`,
			"requestheader-username-headers":     `["X-Remote-User"]`,
			"requestheader-uid-headers":          `["X-Remote-Uid"]`,
			"requestheader-group-headers":        `["X-Remote-Group"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		},
	}
}

// clientCert returns a client certificate for the name, signed by the authority.
func clientCert(t *testing.T, by authority, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	must.Succeed(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func mustAuthority(t *testing.T) authority {
	t.Helper()
	a, err := newAuthority(time.Now())
	must.Succeed(t, err)
	return a
}

// buffer is a log in memory, for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// stubSigner returns a constant token, and records the claims that it should sign.
type stubSigner struct {
	max     time.Duration
	err     error
	claims  []issuer.Claims
	expires time.Time
}

const stubToken = "header.payload.signature"

func (s *stubSigner) MaxLife(identityv1.Algorithm) (time.Duration, error) { return s.max, s.err }

func (s *stubSigner) JWT(_ identityv1.Algorithm, claims any, expires time.Time) (string, error) {
	s.claims, s.expires = append(s.claims, claims.(issuer.Claims)), expires
	return stubToken, s.err
}

// stubContexts accepts every object, or fails.
type stubContexts struct {
	err    error
	caller user.Info
}

func (s *stubContexts) Resolve(_ context.Context, caller user.Info, _ *identityv1.WorkloadIdentity, object *tokenv1.ContextObject) (*issuer.Context, error) {
	s.caller = caller
	if s.err != nil {
		return nil, s.err
	}
	return &issuer.Context{Object: issuer.Reference{Kind: object.Kind, Name: object.Name, UID: object.UID}, Further: map[string]any{"shoot": object.Name}}, nil
}

// minters is an authorizer for members of the group "minters". It allows them every verb, with one
// exception: they may create only tokens and SVIDs, each for an object that the request names.
func minters(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	token := a.GetVerb() == "create" && a.GetAPIGroup() == tokenv1.Group && slices.Contains((&Config{SVIDKinds: svidKinds()}).audited(), a.GetResource()+"/"+a.GetSubresource()) &&
		a.GetNamespace() != "" && a.GetName() != ""
	if slices.Contains(a.GetUser().GetGroups(), "minters") && (token || a.GetVerb() != "create") {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// rig is a token server under test, with a fake Kubernetes API server.
type rig struct {
	kube     *kubefake.Clientset
	proxies  authority // CA of the client certificates of API servers, which act as proxies
	signer   *stubSigner
	objects  *dynamicfake.FakeDynamicClient
	svids    *stubSVIDs
	contexts *stubContexts
	metrics  *Metrics
	audit    *buffer
	log      *buffer
	roots    *x509.CertPool
	address  string
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	return newRigWith(t, func(*Config) {}, objects...)
}

// newRigWith is newRig with a changed configuration.
func newRigWith(t *testing.T, change func(*Config), objects ...client.Object) *rig {
	t.Helper()
	r := &rig{
		proxies: mustAuthority(t), signer: &stubSigner{max: 48 * time.Hour}, contexts: &stubContexts{}, audit: &buffer{}, log: &buffer{},
	}
	r.objects, r.svids = dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), newStubSVIDs(t)
	log := slog.New(slog.NewTextHandler(r.log, nil))
	r.metrics = NewMetrics(log)
	r.kube = kubefake.NewClientset(frontConfig(t, r.proxies))
	c := newClient(t, objects...)
	certificate := newCertificate(c)
	must.Succeed(t, certificate.Step(t.Context()))
	r.roots = x509.NewCertPool()
	r.roots.AddCert(certificate.issuer)
	backend, err := OpenAudit("-", r.audit)
	must.Succeed(t, err)
	config := Config{
		Address: "127.0.0.1:0", Log: log, Certificate: certificate, Kubernetes: r.kube, Authorizer: authorizer.AuthorizerFunc(minters), Audit: backend,
		Clusters: issuer.Clusters{ID: "prod", SpokeUserPrefix: spokeUsers},
		Issuer: &issuer.Issuer{
			URL: "https://issuer.example.com", APIAudiences: []string{"https://kubernetes.default.svc"},
			Limits: issuer.Limits{Min: 10 * time.Minute, Default: time.Hour, Max: 48 * time.Hour},
		},
		Identities: CachedIdentities{Memory: c, Live: c}, Signer: r.signer, Contexts: r.contexts, Metrics: r.metrics,
		SVIDKinds: svidKinds(),
		SVIDs: &SVIDs{
			TrustDomain: spiffeid.RequireTrustDomainFromString("example.com"), Issuer: "https://spiffe.example.com", Algorithm: identityv1.RS256,
			APIAudiences: []string{"https://kubernetes.default.svc"}, Objects: r.objects, Signer: r.svids,
		},
	}
	change(&config)
	server, err := New(t.Context(), config)
	must.Succeed(t, err)
	r.address = server.api.Listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// caller acts as an API server that forwards the requests of one user.
type caller struct {
	rig    *rig
	http   *http.Client
	header http.Header
}

// call returns a caller with a client certificate for the name. If the name is empty, the caller
// has no certificate.
func (r *rig) call(t *testing.T, by authority, name string, header http.Header) *caller {
	t.Helper()
	config := &tls.Config{RootCAs: r.roots, ServerName: serverHost, MinVersion: tls.VersionTLS12}
	if name != "" {
		config.Certificates = []tls.Certificate{clientCert(t, by, name)}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{rig: r, http: &http.Client{Transport: transport, Timeout: time.Minute}, header: header}
}

// minter returns a caller who may create tokens.
func (r *rig) minter(t *testing.T) *caller {
	t.Helper()
	return r.call(t, r.proxies, frontName, http.Header{"X-Remote-User": {"alice"}, "X-Remote-Group": {"minters"}, "X-Remote-Extra-Team": {"a"}})
}

// spoke returns a caller who may create tokens, and whose user name is that of a spoke.
func (r *rig) spoke(t *testing.T, account string) *caller {
	t.Helper()
	return r.call(t, r.proxies, frontName, http.Header{"X-Remote-User": {spokeUsers + account}, "X-Remote-Group": {"minters"}})
}

// refusedHandshake reports whether err says that the server has refused the TLS handshake. With TLS
// 1.3, the client gets this error only when it reads the answer.
func refusedHandshake(err error) bool {
	return err != nil && strings.Contains(err.Error(), "remote error: tls: ")
}

type answer struct {
	proto  string // the protocol, such as HTTP/2.0
	code   int    // the HTTP status; 0 if the server has refused the TLS handshake
	header http.Header
	body   string
}

func (c *caller) do(t *testing.T, method, path, body string) answer {
	t.Helper()
	send := func() (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+c.rig.address+path, strings.NewReader(body))
		must.Succeed(t, err)
		request.Header = c.header.Clone()
		request.Header.Set("Content-Type", "application/json")
		return c.http.Do(request)
	}
	response, err := send()
	// If the server refuses the handshake, the client closes its connection. A write of the request
	// at this moment fails with ErrClosed, which hides the server's refusal.
	for range 10 {
		if !errors.Is(err, net.ErrClosed) {
			break
		}
		response, err = send()
	}
	if refusedHandshake(err) {
		return answer{}
	}
	must.Succeed(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return answer{proto: response.Proto, code: response.StatusCode, header: response.Header, body: string(text)}
}

// mint asks for a token of the identity banana, in a request with the given spec.
func (c *caller) mint(t *testing.T, spec string) answer {
	t.Helper()
	return c.do(t, http.MethodPost, tokenPath("banana"), `{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"TokenRequest","spec":`+spec+`}`)
}

func tokenPath(name string) string {
	return "/apis/token.lanyard.dev/v1alpha1/namespaces/tenant-a/workloadidentities/" + name + "/token"
}

func (a answer) request(t *testing.T) *tokenv1.TokenRequest {
	t.Helper()
	request := &tokenv1.TokenRequest{}
	if err := json.Unmarshal([]byte(a.body), request); a.code != http.StatusCreated || err != nil {
		t.Fatalf("the answer is %d, %s; want a token", a.code, a.body)
	}
	return request
}

func banana() *identityv1.WorkloadIdentity {
	return &identityv1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "banana", UID: "c19b8d9b-4be1-4b3d-9d3a-0a53a9a3a1f2"},
		Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{"team-foo", "team-bar"}, SigningAlgorithm: identityv1.RS256, SubjectFormat: identityv1.SubjectFormatUID,
			TargetSystem: identityv1.TargetSystem{Type: "example"},
		},
	}
}

// libraries collects the log of Kubernetes' libraries in all tests: these libraries share one
// logger per process.
var libraries = &buffer{}

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(libraries, nil)))
	os.Exit(m.Run())
}
