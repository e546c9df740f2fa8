package ocirepository

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Hosts of the tests' network. httptest's certificate is valid for these names.
const (
	cloudHost   = "cloud.example.com"   // a registry that checks credentials with the cloud
	passHost    = "pass.example.com"    // a registry with a user and a password
	publicHost  = "public.example.com"  // a registry that needs no credential
	storageHost = "storage.example.com" // storage to which a registry may redirect
)

const (
	roleA = "role/tenant-a"
	roleB = "role/tenant-b"
)

// world has tenants with repositories in a real registry.
type world struct {
	*controllertest.World[*v1alpha1.OCIRepository]

	registry *registryServer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: controllertest.New[*v1alpha1.OCIRepository](t, cloudHost, store.Options{})}
	w.registry = newRegistry(t, w.Cloud)
	w.Access.Transports = w.registry.network.Pool(t, nil)
	w.Start(func() reconcile.Reconciler { return New(w.Shared, w.Access, 1<<20) })
	return w
}

// tenant makes a namespace with an account, its role and a repository that only the role may read.
func (w *world) tenant(namespace, role string) {
	w.T.Helper()
	w.Cloud.Trust(role, "system:serviceaccount:"+namespace+":puller")
	w.registry.grant(namespace+"/app", role)
	w.account(namespace, "uid-"+namespace, role)
	w.registry.push(w.T, namespace+"/app", "v1", layerOf(w.T, map[string]string{"hello.txt": "hello " + namespace}))
}

// account makes or changes the tenant's account, which has the name puller.
func (w *world) account(namespace, uid, role string) {
	w.T.Helper()
	w.Accounts.Put(w.T, namespace, "puller", uid, map[string]string{"role": role})
}

// create stores an object that fetches the tenant's repository. The function edit may change the
// object first.
func (w *world) create(namespace, name string, edit func(*v1alpha1.OCIRepository)) *v1alpha1.OCIRepository {
	w.T.Helper()
	return w.Create(&v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.OCIRepositorySpec{
			URL:            "oci://" + cloudHost + "/" + namespace + "/app",
			Ref:            &v1alpha1.OCIRepositoryRef{Tag: "v1"},
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: "aws", ServiceAccountName: "puller"}},
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: 10 * time.Minute}},
		},
	}, edit)
}

// registryServer runs the registry of the distribution project on several hosts. Each host checks
// credentials as the comment on its constant says.
type registryServer struct {
	cloud   *controllertest.Cloud
	inner   http.Handler
	network *controllertest.Network

	mu       sync.Mutex
	roles    map[string]string // repository -> role that may read it
	blobs    int               // number of requested blobs
	tampered func(http.ResponseWriter, *http.Request, http.Handler) bool
}

func newRegistry(t *testing.T, c *controllertest.Cloud) *registryServer {
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
	g.network = controllertest.NewNetwork(t, map[string]http.Handler{
		cloudHost: http.HandlerFunc(g.askCloud), passHost: http.HandlerFunc(g.askPassword), publicHost: g.inner, storageHost: http.HandlerFunc(g.storage),
	})
	return g
}

// grant lets only this role read the repository.
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

// tampers lets the test answer in place of the registry, and reports whether the test did so.
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
		w.WriteHeader(http.StatusTeapot) // a credential must not be sent to the storage
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
	must.Succeed(t, err)
	image = mutate.Annotations(image, map[string]string{"org.opencontainers.image.revision": tag}).(v1.Image)
	ref, err := name.NewTag(publicHost+"/"+repository+":"+tag, name.StrictValidation)
	must.Succeed(t, err)
	rt := g.network.Transport()
	rt.DialContext = g.network.Dial
	defer rt.CloseIdleConnections()
	must.Succeed(t, remote.Write(ref, image, remote.WithTransport(rt), remote.WithContext(t.Context())))
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

// tape writes an archive.
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
	must.Succeed(p.t, p.w.WriteHeader(h))
}

func tarOf(t *testing.T, fill func(tape)) []byte {
	t.Helper()
	var buf bytes.Buffer
	gz := gzip.NewWriter(&buf)
	tw := tar.NewWriter(gz)
	fill(tape{t, tw})
	must.Succeed(t, errors.Join(tw.Close(), gz.Close()))
	return buf.Bytes()
}
