package ocirepository

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
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

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // storage of the real registry
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	staticlayer "github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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
	cloudHost   = "cloud.example.com"   // a registry that asks the cloud
	passHost    = "pass.example.com"    // one with a user and a password
	publicHost  = "public.example.com"  // one that asks nobody
	storageHost = "storage.example.com" // where a registry may redirect to
)

const (
	roleA = "role/tenant-a"
	roleB = "role/tenant-b"
)

// world is a reconciler in a process of its own: a real registry and store, a fake API server, and a cloud that remembers.
type world struct {
	t        *testing.T
	r        *Reconciler
	shared   *source.Shared
	access   *source.Access
	kube     client.WithWatch
	patches  int // of statuses
	events   *events.FakeRecorder
	cloud    *cloud
	accounts *accounts
	registry *registryServer
	elected  chan struct{}
	dir      string
}

func newWorld(t *testing.T, storeOptions store.Options) *world {
	t.Helper()
	w := &world{t: t, events: events.NewFakeRecorder(100), elected: make(chan struct{}), dir: t.TempDir()}
	w.cloud = &cloud{trust: map[string]string{}, roles: map[string]string{}}
	w.accounts = &accounts{known: map[auth.Subject]auth.Account{}}
	w.registry = newRegistry(t, w.cloud)

	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w.kube = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.OCIRepository{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				w.patches++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()

	artifacts, err := store.Open(w.dir, storeOptions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = artifacts.Close() })
	pool, err := transport.NewPool(transport.Options{Base: w.registry.transport(), Dial: w.registry.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	tokens := cache.New(cache.Options{MaxSize: 100})
	w.accounts.Subscribe(tokens.Invalidate)
	w.access = &source.Access{
		Live: w.kube, Providers: map[string]auth.Provider{"aws": w.cloud}, Accounts: w.accounts, Cache: tokens, Observer: tokens, Transports: pool,
	}
	w.shared = &source.Shared{
		Client: w.kube, Recorder: w.events, Rules: spec.Rules{Providers: []string{"aws"}}, Accounts: w.accounts, Metrics: tokens,
		Artifacts: &source.Artifacts{Store: artifacts, BaseURL: "http://artifacts.example.com", Elected: w.elected},
		Workers:   &source.Workers{},
	}
	w.r = New(w.shared, w.access, 1<<20)
	return w
}

// tenant makes a namespace with an account, its role and a repository that only the role may read.
func (w *world) tenant(namespace, role string) {
	w.cloud.set(func(c *cloud) {
		c.trust[role] = "system:serviceaccount:" + namespace + ":puller"
		c.roles[namespace+"/app"] = role
	})
	w.accounts.put(w.t, namespace, "uid-"+namespace, role)
	w.registry.push(w.t, namespace+"/app", "v1", layerOf(w.t, map[string]string{"hello.txt": "hello " + namespace}))
}

// create stores an object that fetches the tenant's repository, as edit changes it.
func (w *world) create(namespace, name string, edit func(*v1alpha1.OCIRepository)) *v1alpha1.OCIRepository {
	w.t.Helper()
	o := &v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: k8stypes.UID("uid-" + namespace + "-" + name), Generation: 1},
		Spec: v1alpha1.OCIRepositorySpec{
			URL: "oci://" + cloudHost + "/" + namespace + "/app", Ref: &v1alpha1.OCIRepositoryRef{Tag: "v1"},
			Provider: "aws", ServiceAccountName: "puller", Interval: metav1.Duration{Duration: 10 * time.Minute},
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

func (w *world) get(o *v1alpha1.OCIRepository) *v1alpha1.OCIRepository {
	w.t.Helper()
	got := &v1alpha1.OCIRepository{}
	if err := w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(o), got); err != nil {
		w.t.Fatal(err)
	}
	return got
}

// edit changes an object as a user does, who makes a new generation.
func (w *world) edit(o *v1alpha1.OCIRepository, change func(*v1alpha1.OCIRepository)) {
	w.t.Helper()
	got := w.get(o)
	change(got)
	got.Generation++
	if err := w.kube.Update(w.t.Context(), got); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) annotate(o *v1alpha1.OCIRepository, request string) {
	w.t.Helper()
	got := w.get(o)
	got.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: request}
	if err := w.kube.Update(w.t.Context(), got); err != nil {
		w.t.Fatal(err)
	}
}

// reconcile runs once and returns the object as it stands then. It checks what must hold of every status.
func (w *world) reconcile(o *v1alpha1.OCIRepository) (*v1alpha1.OCIRepository, reconcile.Result) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	if err != nil {
		w.t.Fatalf("reconcile: %v", err)
	}
	got := w.get(o)
	w.holds(got, result)
	return got, result
}

// holds checks kstatus' rules, and that status and store agree.
func (w *world) holds(o *v1alpha1.OCIRepository, result reconcile.Result) {
	w.t.Helper()
	conditions := map[string]metav1.Condition{}
	for _, c := range o.Status.Conditions {
		conditions[c.Type] = c
		if c.ObservedGeneration != o.Generation {
			w.t.Errorf("condition %s speaks of generation %d, the object is of %d", c.Type, c.ObservedGeneration, o.Generation)
		}
	}
	_, reconciling := conditions[meta.ConditionReconciling]
	_, stalled := conditions[meta.ConditionStalled]
	isReady := conditions[meta.ConditionReady]
	switch {
	case isReady.Status == "":
		w.t.Errorf("no condition Ready: %+v", o.Status.Conditions)
	case isReady.Status == metav1.ConditionUnknown:
		w.t.Errorf("Ready is Unknown after a reconciliation: %+v", isReady)
	case reconciling && stalled:
		w.t.Error("both Reconciling and Stalled")
	case isReady.Status == metav1.ConditionTrue && (reconciling || stalled):
		w.t.Error("Ready, and Reconciling or Stalled")
	case stalled && result.RequeueAfter != 0:
		w.t.Errorf("stalled, and tried again after %s", result.RequeueAfter)
	case !stalled && !o.Spec.Suspend && result.RequeueAfter <= 0:
		w.t.Error("neither stalled nor tried again")
	}
	if o.Status.ObservedGeneration != o.Generation {
		w.t.Errorf("observedGeneration %d, want %d", o.Status.ObservedGeneration, o.Generation)
	}
	_, inStorage := conditions[meta.ConditionArtifactInStorage]
	if has := o.Status.Artifact != nil && w.shared.Artifacts.Store.Verify(w.t.Context(), owner(o), o.Status.Artifact.Digest) == nil; has != inStorage {
		w.t.Errorf("ArtifactInStorage is %v, the store says %v", inStorage, has)
	}
}

// ready is the condition Ready, or its zero.
func ready(o *v1alpha1.OCIRepository) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// owner is the object as the store knows it.
func owner(o *v1alpha1.OCIRepository) store.Object {
	return store.Object{Kind: "ocirepository", Namespace: o.Namespace, Name: o.Name, UID: string(o.UID)}
}

// told returns the events since the last call.
func (w *world) told() []string {
	var all []string
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// served reads the artifact by its path in the store.
func (w *world) served(o *v1alpha1.OCIRepository) map[string]string {
	w.t.Helper()
	f, _, err := w.shared.Artifacts.Store.ByURLPath(strings.TrimPrefix(o.Status.Artifact.URL, w.shared.Artifacts.BaseURL))
	if err != nil {
		w.t.Fatalf("open the artifact: %v", err)
	}
	defer f.Close()
	gz, err := gzip.NewReader(f)
	if err != nil {
		w.t.Fatal(err)
	}
	files := map[string]string{}
	for tr := tar.NewReader(gz); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			w.t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			w.t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

// accounts are ServiceAccounts without an API server.
type accounts struct {
	mu          sync.Mutex
	known       map[auth.Subject]auth.Account
	unheard     bool // memory knows nothing yet
	subscribers []func(auth.Subject)
}

// put makes or changes a tenant's account, which is called puller.
func (a *accounts) put(t *testing.T, namespace, uid, role string) {
	t.Helper()
	subject, err := auth.ServiceAccount(namespace, "puller")
	if err != nil {
		t.Fatal(err)
	}
	account := auth.Account{Subject: subject, UID: uid, Attributes: map[string]string{}}
	if role != "" {
		account.Attributes["role"] = role
	}
	a.mu.Lock()
	_, known := a.known[subject]
	a.known[subject] = account
	a.mu.Unlock()
	if known {
		a.tell(subject)
	}
}

// remove takes tenant-a's account away.
func (a *accounts) remove(t *testing.T) {
	t.Helper()
	subject, err := auth.ServiceAccount("tenant-a", "puller")
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	delete(a.known, subject)
	a.mu.Unlock()
	a.tell(subject)
}

func (a *accounts) tell(subject auth.Subject) {
	a.mu.Lock()
	subscribers := a.subscribers
	a.mu.Unlock()
	for _, changed := range subscribers {
		changed(subject)
	}
}

func (a *accounts) find(subject auth.Subject, unheard bool) (auth.Account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	account, ok := a.known[subject]
	if !ok || unheard {
		return auth.Account{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Fix: "create ServiceAccount " + subject.Name(), Err: errors.New("does not exist"),
		}
	}
	return account, nil
}

func (a *accounts) Lookup(_ context.Context, s auth.Subject) (auth.Account, error) {
	return a.find(s, a.unheard)
}

func (a *accounts) Read(_ context.Context, s auth.Subject) (auth.Account, error) {
	return a.find(s, false)
}

func (a *accounts) Subscribe(changed func(auth.Subject)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.subscribers = append(a.subscribers, changed)
}

func (a *accounts) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	return auth.Proof{Token: auth.NewSecret(account.Subject.String() + " for " + request.Audience), ExpiresAt: time.Now().Add(request.Lifetime)}, nil
}

// cloud is a provider whose roles trust one subject each.
type cloud struct {
	mu        sync.Mutex
	trust     map[string]string // role -> subject
	roles     map[string]string // repository -> role that may read it
	passwords map[string]string // password -> role
	exchanges int
	proxies   []string // of the exchanges
	down      error
}

func (c *cloud) set(change func(*cloud)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *cloud) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exchanges
}

func (c *cloud) GetName() string { return "aws" }

func (c *cloud) GetTarget(o *auth.Options) (auth.Target, error) {
	host, _, _ := strings.Cut(o.ImageRepository, "/")
	if host != cloudHost {
		return auth.Target{}, &auth.Error{
			Stage: auth.StageRegistry, Code: auth.CodeEndpointRefused, Fix: "name a registry of the cloud", Err: fmt.Errorf("%q is none", host),
		}
	}
	return auth.Target{Image: host}, nil
}

func (c *cloud) GetIdentity(a auth.Account) (string, error) {
	switch role := a.Attributes["role"]; {
	case role == "":
		return "", &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing, Fix: "annotate the ServiceAccount", Err: errors.New("no role")}
	case !strings.HasPrefix(role, "role/"):
		return "", &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid, Fix: "write role/<name>", Err: errors.New("no ARN")}
	default:
		return role, nil
	}
}

func (c *cloud) GetAudience(context.Context, *auth.Request) (string, error) { return "sts", nil }

type session struct{ role string }

func (*session) GetDuration() time.Duration { return time.Hour }

func (c *cloud) NewTokenForServiceAccount(_ context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchanges++
	if request.ProxyURL != nil {
		c.proxies = append(c.proxies, request.ProxyURL.Host)
	}
	if c.down != nil {
		return nil, c.down
	}
	if role := request.Key.Identity; c.trust[role]+" for sts" != proof.Token.Reveal() {
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
	if c.passwords == nil {
		c.passwords = map[string]string{}
	}
	c.passwords[password] = token.(*session).role
	return &auth.RegistryCredentials{Username: "AWS", Password: auth.NewSecret(password), ExpiresAt: time.Now().Add(30 * time.Minute)}, nil
}

// registryServer is the distribution project's own, behind doors that differ by host.
type registryServer struct {
	cloud     *cloud
	inner     http.Handler
	roots     *x509.CertPool
	ca        *x509.Certificate
	addresses map[string]string // host:port -> address

	mu       sync.Mutex
	blobs    int // fetched
	tampered func(http.ResponseWriter, *http.Request, http.Handler) bool
}

func newRegistry(t *testing.T, c *cloud) *registryServer {
	t.Helper()
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.Secret = "for one test"
	config.Log.Level = "panic"
	config.Log.AccessLog.Disabled = true
	g := &registryServer{cloud: c, inner: handlers.NewApp(t.Context(), config), roots: x509.NewCertPool(), addresses: map[string]string{}}
	for host, door := range map[string]http.Handler{
		cloudHost: http.HandlerFunc(g.askCloud), passHost: http.HandlerFunc(g.askPassword), publicHost: g.inner, storageHost: http.HandlerFunc(g.storage),
	} {
		server := httptest.NewUnstartedServer(door)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		g.ca = server.Certificate()
		g.roots.AddCert(g.ca)
		g.addresses[host+":443"] = server.Listener.Addr().String()
	}
	return g
}

func (g *registryServer) transport() *http.Transport {
	t := transport.Default()
	t.Proxy = nil
	t.TLSClientConfig = &tls.Config{RootCAs: g.roots, MinVersion: tls.VersionTLS12}
	return t
}

func (g *registryServer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to, ok := g.addresses[address]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

func (g *registryServer) tamper(f func(http.ResponseWriter, *http.Request, http.Handler) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tampered = f
}

func (g *registryServer) pulls() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.blobs
}

func (g *registryServer) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	if strings.Contains(r.URL.Path, "/blobs/") {
		g.blobs++
	}
	g.mu.Unlock()
	g.inner.ServeHTTP(w, r)
}

// tampers reports whether the test answered in place of the registry.
func (g *registryServer) tampers(w http.ResponseWriter, r *http.Request) bool {
	g.mu.Lock()
	tampered := g.tampered
	g.mu.Unlock()
	return tampered != nil && tampered(w, r, g.inner)
}

func (g *registryServer) askCloud(w http.ResponseWriter, r *http.Request) {
	if g.tampers(w, r) {
		return
	}
	_, password, _ := r.BasicAuth()
	g.cloud.mu.Lock()
	role, known := g.cloud.passwords[password]
	repository, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
	repository, _, _ = strings.Cut(repository, "/blobs/")
	repository, _, _ = strings.Cut(repository, "/tags/")
	allowed := repository == "" || g.cloud.roles[repository] == role
	g.cloud.mu.Unlock()
	switch {
	case !known:
		unauthorized(w)
	case !allowed:
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":"%s is not authorized to perform: ecr:BatchGetImage on %s"}]}`, role, repository)
	default:
		g.serve(w, r)
	}
}

func (g *registryServer) askPassword(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); user != "robot" || password != "hunter2" {
		unauthorized(w)
		return
	}
	g.serve(w, r)
}

func (g *registryServer) storage(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		w.WriteHeader(http.StatusTeapot) // a credential that came too far
		return
	}
	g.inner.ServeHTTP(w, r)
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
}

// push publishes a layer under a tag.
func (g *registryServer) push(t *testing.T, repository, tag string, layer []byte) {
	t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image, err := mutate.AppendLayers(image, staticlayer.NewLayer(layer, "application/vnd.cncf.flux.content.v1.tar+gzip"))
	if err != nil {
		t.Fatal(err)
	}
	image = mutate.Annotations(image, map[string]string{"org.opencontainers.image.revision": tag}).(v1.Image)
	ref, err := name.NewTag(publicHost+"/"+repository+":"+tag, name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	rt := g.transport()
	rt.DialContext = g.dial
	defer rt.CloseIdleConnections()
	if err := remote.Write(ref, image, remote.WithTransport(rt), remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// layerOf packs files as tar.gz.
func layerOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	return tarOf(t, func(out tape) {
		for file, content := range files {
			out.file(file, content)
		}
	})
}

// tape is an archive that is being written.
type tape struct {
	t *testing.T
	w *tar.Writer
}

func (p tape) file(name, content string) {
	p.t.Helper()
	p.entry(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))})
	if _, err := io.WriteString(p.w, content); err != nil {
		p.t.Fatal(err)
	}
}

func (p tape) entry(h *tar.Header) {
	p.t.Helper()
	if err := p.w.WriteHeader(h); err != nil {
		p.t.Fatal(err)
	}
}

func tarOf(t *testing.T, fill func(tape)) []byte {
	t.Helper()
	var buf bytes.Buffer
	gz := gzip.NewWriter(&buf)
	tw := tar.NewWriter(gz)
	fill(tape{t, tw})
	if err := errors.Join(tw.Close(), gz.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
