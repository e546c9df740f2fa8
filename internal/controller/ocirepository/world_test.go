package ocirepository

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/controller/source/sourcetest"
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
	cloud    *sourcetest.Cloud
	accounts *sourcetest.Accounts
	registry *registryServer
	elected  chan struct{}
	dir      string
}

func newWorld(t *testing.T, storeOptions store.Options) *world {
	t.Helper()
	w := &world{
		t: t, events: events.NewFakeRecorder(100), elected: make(chan struct{}), dir: t.TempDir(),
		cloud: sourcetest.NewCloud(cloudHost), accounts: &sourcetest.Accounts{},
	}
	w.registry = newRegistry(t, w.cloud)
	w.kube = sourcetest.NewKube(t, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.patches++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	artifacts, err := store.Open(w.dir, storeOptions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = artifacts.Close() })
	tokens := cache.New(cache.Options{MaxSize: 100})
	w.accounts.Subscribe(tokens.Invalidate)
	w.access = &source.Access{
		Live: w.kube, Providers: map[string]auth.Provider{"aws": w.cloud}, Accounts: w.accounts, Cache: tokens, Observer: tokens,
		Transports: w.registry.network.Pool(t, nil),
	}
	w.shared = &source.Shared{
		Client: w.kube, Recorder: w.events, Rules: spec.Rules{Providers: []string{"aws"}}, Accounts: w.accounts, Metrics: tokens,
		Artifacts: &source.Artifacts{Store: artifacts, BaseURL: sourcetest.BaseURL, Elected: w.elected},
	}
	w.r = New(w.shared, w.access, 1<<20)
	return w
}

// tenant makes a namespace with an account, its role and a repository that only the role may read.
func (w *world) tenant(namespace, role string) {
	w.t.Helper()
	w.cloud.Trust(role, "system:serviceaccount:"+namespace+":puller")
	w.registry.grant(namespace+"/app", role)
	w.account(namespace, "uid-"+namespace, role)
	w.registry.push(w.t, namespace+"/app", "v1", layerOf(w.t, map[string]string{"hello.txt": "hello " + namespace}))
}

// account makes or changes a tenant's account, which is called puller.
func (w *world) account(namespace, uid, role string) {
	w.t.Helper()
	w.accounts.Put(w.t, namespace, "puller", uid, map[string]string{"role": role})
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
	sourcetest.Create(w.t, w.kube, o)
	return o
}

func (w *world) get(o *v1alpha1.OCIRepository) *v1alpha1.OCIRepository {
	w.t.Helper()
	return sourcetest.Get(w.t, w.kube, o)
}

// edit changes an object as a user does, who makes a new generation.
func (w *world) edit(o *v1alpha1.OCIRepository, change func(*v1alpha1.OCIRepository)) {
	w.t.Helper()
	sourcetest.Edit(w.t, w.kube, o, change)
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
	stored := got.Status.Artifact != nil && w.shared.Artifacts.Store.Verify(w.t.Context(), owner(got), got.Status.Artifact.Digest) == nil
	sourcetest.Holds(w.t, got, sourcetest.View{Status: got.Status.Status, Suspended: got.Spec.Suspend, Stored: stored}, result)
	return got, result
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

// served reads the artifact by its URL.
func (w *world) served(o *v1alpha1.OCIRepository) map[string]string {
	w.t.Helper()
	return sourcetest.Served(w.t, w.shared.Artifacts.Store, o.Status.Artifact)
}

// registryServer is the distribution project's own, behind doors that differ by host.
type registryServer struct {
	cloud   *sourcetest.Cloud
	inner   http.Handler
	network *sourcetest.Network

	mu       sync.Mutex
	roles    map[string]string // repository -> role that may read it
	blobs    int               // fetched
	tampered func(http.ResponseWriter, *http.Request, http.Handler) bool
}

func newRegistry(t *testing.T, c *sourcetest.Cloud) *registryServer {
	t.Helper()
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.Secret = "for one test"
	config.Log.Level = "panic"
	config.Log.AccessLog.Disabled = true
	g := &registryServer{cloud: c, inner: handlers.NewApp(t.Context(), config), roles: map[string]string{}}
	g.network = sourcetest.NewNetwork(t, map[string]http.Handler{
		cloudHost: http.HandlerFunc(g.askCloud), passHost: http.HandlerFunc(g.askPassword), publicHost: g.inner, storageHost: http.HandlerFunc(g.storage),
	})
	return g
}

// grant lets a role read a repository, and no other role any more.
func (g *registryServer) grant(repository, role string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roles[repository] = role
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
	role, known := g.cloud.Holder(password)
	repository, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
	repository, _, _ = strings.Cut(repository, "/blobs/")
	repository, _, _ = strings.Cut(repository, "/tags/")
	g.mu.Lock()
	allowed := repository == "" || g.roles[repository] == role
	g.mu.Unlock()
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
	rt := g.network.Transport()
	rt.DialContext = g.network.Dial
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
