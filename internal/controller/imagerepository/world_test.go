package imagerepository

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Hosts of the tests' network, under the names of httptest's certificate.
const (
	cloudHost  = "cloud.example.com"  // a registry that asks the cloud
	passHost   = "pass.example.com"   // one with a user and a password
	publicHost = "public.example.com" // one that asks nobody
)

// world is a reconciler in a process of its own: a registry, a fake API server, and a cloud whose roles trust one subject each.
type world struct {
	t        *testing.T
	r        *Reconciler
	kube     client.WithWatch
	cloud    *cloud
	registry *registries
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, cloud: &cloud{trust: map[string]string{}, passwords: map[string]string{}}}
	w.registry = &registries{cloud: w.cloud, tags: map[string][]string{}, roles: map[string]string{}}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w.kube = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ImageRepository{}).Build()
	artifacts, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = artifacts.Close() })
	pool, err := transport.NewPool(w.registry.serve(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	tokens := cache.New(cache.Options{MaxSize: 100})
	shared := &source.Shared{
		Client: w.kube, Recorder: events.NewFakeRecorder(100), Rules: spec.Rules{Providers: []string{"aws"}}, Accounts: accounts{}, Metrics: tokens,
		Artifacts: &source.Artifacts{Store: artifacts, BaseURL: "http://artifacts.example.com", Elected: make(chan struct{})},
		Workers:   &source.Workers{},
	}
	w.r = New(shared, &source.Access{
		Live: w.kube, Providers: map[string]auth.Provider{"aws": w.cloud}, Accounts: accounts{}, Cache: tokens, Observer: tokens, Transports: pool,
	})
	return w
}

// tenant makes a repository with these tags that only the tenant's role may list.
func (w *world) tenant(namespace string, tags ...string) {
	w.cloud.trust["role/"+namespace] = "system:serviceaccount:" + namespace + ":puller"
	w.registry.roles[namespace+"/app"] = "role/" + namespace
	w.registry.tags[namespace+"/app"] = tags
}

// create stores an object that scans the tenant's repository, as edit changes it.
func (w *world) create(namespace, name string, edit func(*v1alpha1.ImageRepository)) *v1alpha1.ImageRepository {
	w.t.Helper()
	o := &v1alpha1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), Generation: 1},
		Spec: v1alpha1.ImageRepositorySpec{
			Image: cloudHost + "/" + namespace + "/app", Provider: "aws", ServiceAccountName: "puller",
			ExclusionList: []string{v1alpha1.DefaultTagExclusion}, Interval: metav1.Duration{Duration: 10 * time.Minute},
		},
	}
	if edit != nil {
		edit(o)
	}
	if err := w.kube.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// edit changes an object as a user does, who makes a new generation.
func (w *world) edit(o *v1alpha1.ImageRepository, change func(*v1alpha1.ImageRepository)) {
	w.t.Helper()
	got := w.get(o)
	change(got)
	got.Generation++
	if err := w.kube.Update(w.t.Context(), got); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(o *v1alpha1.ImageRepository) *v1alpha1.ImageRepository {
	w.t.Helper()
	got := &v1alpha1.ImageRepository{}
	if err := w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(o), got); err != nil {
		w.t.Fatal(err)
	}
	return got
}

// reconcile runs once and returns the object as it stands then.
func (w *world) reconcile(o *v1alpha1.ImageRepository) (*v1alpha1.ImageRepository, reconcile.Result) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	if err != nil {
		w.t.Fatal(err)
	}
	got := w.get(o)
	if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), "s3cret") || strings.Contains(string(text), "hunter2") {
		w.t.Errorf("a password is shown: %s, %v", text, err)
	}
	return got, result
}

// condition is the object's condition of a type, or its zero.
func condition(o *v1alpha1.ImageRepository, kind string) metav1.Condition {
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

// wants checks the conditions for an outcome.
func (w *world) wants(o *v1alpha1.ImageRepository, status metav1.ConditionStatus, reason, message string, stalled bool) {
	w.t.Helper()
	got := condition(o, meta.ConditionReady)
	if got.Status != status || got.Reason != reason || !strings.Contains(got.Message, message) {
		w.t.Errorf("Ready is %s, %s: %s\nwant %s, %s: …%s…", got.Status, got.Reason, got.Message, status, reason, message)
	}
	if is := condition(o, meta.ConditionStalled).Status == metav1.ConditionTrue; is != stalled {
		w.t.Errorf("stalled is %v", is)
	}
}

// accounts are the ServiceAccounts called puller of all namespaces, each with a role by the namespace's name.
type accounts struct{}

func (accounts) Lookup(_ context.Context, s auth.Subject) (auth.Account, error) {
	return auth.Account{Subject: s, UID: "uid-" + s.Namespace(), Attributes: map[string]string{"role": "role/" + s.Namespace()}}, nil
}

func (a accounts) Read(ctx context.Context, s auth.Subject) (auth.Account, error) {
	return a.Lookup(ctx, s)
}

func (accounts) Subscribe(func(auth.Subject)) {}

func (accounts) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	return auth.Proof{Token: auth.NewSecret(account.Subject.String()), ExpiresAt: time.Now().Add(request.Lifetime)}, nil
}

// cloud is a provider whose roles trust one subject each.
type cloud struct {
	mu        sync.Mutex
	trust     map[string]string // role -> subject
	passwords map[string]string // password -> role
	exchanges int
}

func (*cloud) GetName() string { return "aws" }

func (*cloud) GetTarget(o *auth.Options) (auth.Target, error) {
	if host, _, _ := strings.Cut(o.ImageRepository, "/"); host != cloudHost {
		return auth.Target{}, &auth.Error{
			Stage: auth.StageRegistry, Code: auth.CodeEndpointRefused, Fix: "name a registry of the cloud", Err: fmt.Errorf("%q is none", host),
		}
	}
	return auth.Target{Image: cloudHost}, nil
}

func (*cloud) GetIdentity(a auth.Account) (string, error) { return a.Attributes["role"], nil }

func (*cloud) GetAudience(context.Context, *auth.Request) (string, error) { return "sts", nil }

type session struct{ role string }

func (*session) GetDuration() time.Duration { return time.Hour }

func (c *cloud) NewTokenForServiceAccount(_ context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchanges++
	if role := request.Key.Identity; c.trust[role] != proof.Token.Reveal() {
		return nil, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeTrustRefused, Fix: "have the role's trust policy name the subject",
			Err: fmt.Errorf("%s does not trust %s", role, request.Key.Subject),
		}
	}
	return &session{request.Key.Identity}, nil
}

func (c *cloud) NewRegistryToken(_ context.Context, token auth.Token, _ *auth.Request) (*auth.RegistryCredentials, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	password := fmt.Sprintf("s3cret-%d", c.exchanges)
	c.passwords[password] = token.(*session).role
	return &auth.RegistryCredentials{Username: "AWS", Password: auth.NewSecret(password), ExpiresAt: time.Now().Add(time.Hour)}, nil
}

// registries list tags behind doors that differ by host, fifty on a page.
type registries struct {
	cloud *cloud
	tags  map[string][]string // by repository
	roles map[string]string   // repository -> role that may list it

	mu       sync.Mutex
	asked    int // pages
	answered func(http.ResponseWriter, *http.Request) bool
}

func (g *registries) serve(t *testing.T) transport.Options {
	t.Helper()
	roots, addresses := x509.NewCertPool(), map[string]string{}
	for host, door := range map[string]http.HandlerFunc{cloudHost: g.askCloud, passHost: g.askPassword, publicHost: g.list} {
		server := httptest.NewUnstartedServer(door)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		roots.AddCert(server.Certificate())
		addresses[host+":443"] = server.Listener.Addr().String()
	}
	base := transport.Default()
	base.Proxy = nil
	base.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return transport.Options{Base: base, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		to, ok := addresses[address]
		if !ok {
			return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}}
}

// answer has the test answer requests for tags that it says yes to.
func (g *registries) answer(f func(http.ResponseWriter, *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered = f
}

func (g *registries) pages() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

func (g *registries) askCloud(w http.ResponseWriter, r *http.Request) {
	_, password, _ := r.BasicAuth()
	g.cloud.mu.Lock()
	role, known := g.cloud.passwords[password]
	g.cloud.mu.Unlock()
	switch {
	case !known:
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	case r.URL.Path != "/v2/" && g.roles[repositoryOf(r)] != role:
		refuse(w, http.StatusForbidden, "DENIED", role+" is not authorized to perform: ecr:ListImages")
	default:
		g.list(w, r)
	}
}

func (g *registries) askPassword(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); user != "robot" || password != "hunter2" {
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
		return
	}
	g.list(w, r)
}

func repositoryOf(r *http.Request) string {
	return strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v2/"), "/tags/list")
}

func (g *registries) list(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v2/" {
		_, _ = io.WriteString(w, "{}")
		return
	}
	g.mu.Lock()
	g.asked++
	answered := g.answered
	g.mu.Unlock()
	if answered != nil && answered(w, r) {
		return
	}
	tags, ok := g.tags[repositoryOf(r)]
	if !ok || !strings.HasSuffix(r.URL.Path, "/tags/list") {
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "repository name not known to registry")
		return
	}
	from := 0
	_, _ = fmt.Sscanf(r.URL.Query().Get("last"), "%d", &from)
	const page = 50
	if from+page < len(tags) {
		w.Header().Set("Link", fmt.Sprintf(`<%s?last=%d>; rel="next"`, r.URL.Path, from+page))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"name": repositoryOf(r), "tags": tags[from:min(from+page, len(tags))]})
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, message)
}
