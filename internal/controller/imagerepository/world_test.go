package imagerepository

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	cloudHost  = "cloud.example.com"  // a registry that asks the cloud
	passHost   = "pass.example.com"   // one with a user and a password
	publicHost = "public.example.com" // one that asks nobody
)

// world is a reconciler in a process of its own: a registry, a fake API server, and a cloud whose roles trust one subject each.
type world struct {
	t        *testing.T
	r        *Reconciler
	access   *source.Access
	kube     client.WithWatch
	cloud    *sourcetest.Cloud
	accounts *sourcetest.Accounts
	registry *registries
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, cloud: sourcetest.NewCloud(cloudHost), accounts: &sourcetest.Accounts{}, kube: sourcetest.NewKube(t, interceptor.Funcs{})}
	w.registry = newRegistries(t, w.cloud)
	artifacts, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = artifacts.Close() })
	tokens := cache.New(cache.Options{MaxSize: 100})
	w.accounts.Subscribe(tokens.Invalidate)
	shared := &source.Shared{
		Client: w.kube, Recorder: events.NewFakeRecorder(100), Rules: spec.Rules{Providers: []string{"aws"}}, Accounts: w.accounts, Metrics: tokens,
		Artifacts: &source.Artifacts{Store: artifacts, BaseURL: sourcetest.BaseURL, Elected: make(chan struct{})},
	}
	w.access = &source.Access{
		Live: w.kube, Providers: map[string]auth.Provider{"aws": w.cloud}, Accounts: w.accounts, Cache: tokens, Observer: tokens,
		Transports: w.registry.network.Pool(t, nil),
	}
	w.r = New(shared, w.access)
	return w
}

// tenant makes a repository with these tags that only the tenant's role may list. Of the accounts puller and other the role trusts the
// first.
func (w *world) tenant(namespace string, tags ...string) {
	w.t.Helper()
	w.cloud.Trust("role/"+namespace, "system:serviceaccount:"+namespace+":puller")
	for _, account := range []string{"puller", "other"} {
		w.accounts.Put(w.t, namespace, account, "uid-"+namespace+"-"+account, map[string]string{"role": "role/" + namespace})
	}
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
	sourcetest.Create(w.t, w.kube, o)
	return o
}

// edit changes an object as a user does, who makes a new generation.
func (w *world) edit(o *v1alpha1.ImageRepository, change func(*v1alpha1.ImageRepository)) {
	w.t.Helper()
	sourcetest.Edit(w.t, w.kube, o, change)
}

func (w *world) get(o *v1alpha1.ImageRepository) *v1alpha1.ImageRepository {
	w.t.Helper()
	return sourcetest.Get(w.t, w.kube, o)
}

// secret stores a Secret of tenant-a.
func (w *world) secret(name string, kind corev1.SecretType, data map[string]string) {
	w.t.Helper()
	sourcetest.CreateSecret(w.t, w.kube, "tenant-a", name, kind, data)
}

// reconcile runs once and returns the object as it stands then. It checks what must hold of every status.
func (w *world) reconcile(o *v1alpha1.ImageRepository) (*v1alpha1.ImageRepository, reconcile.Result) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	if err != nil {
		w.t.Fatal(err)
	}
	got := w.get(o)
	sourcetest.Holds(w.t, got, sourcetest.View{Status: got.Status.Status, Suspended: got.Spec.Suspend}, result)
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

// registries list tags behind doors that differ by host, fifty on a page.
type registries struct {
	cloud   *sourcetest.Cloud
	network *sourcetest.Network
	tags    map[string][]string // by repository
	roles   map[string]string   // repository -> role that may list it

	mu       sync.Mutex
	asked    int // pages
	answered func(http.ResponseWriter, *http.Request) bool
}

func newRegistries(t *testing.T, c *sourcetest.Cloud) *registries {
	t.Helper()
	g := &registries{cloud: c, tags: map[string][]string{}, roles: map[string]string{}}
	g.network = sourcetest.NewNetwork(t, map[string]http.Handler{
		cloudHost: http.HandlerFunc(g.askCloud), passHost: http.HandlerFunc(g.askPassword), publicHost: http.HandlerFunc(g.list),
	})
	return g
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
	role, known := g.cloud.Holder(password)
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
