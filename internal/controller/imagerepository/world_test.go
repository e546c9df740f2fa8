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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

// Hosts of the tests' network. httptest's certificate is valid for these names.
const (
	cloudHost  = "cloud.example.com"  // a registry that checks credentials with the cloud
	passHost   = "pass.example.com"   // a registry with a user and a password
	publicHost = "public.example.com" // a registry that needs no credential
)

// world has tenants with repositories. The repositories have tags, but no content.
type world struct {
	*controllertest.World[*v1alpha1.ImageRepository]

	registry *registries
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: controllertest.New[*v1alpha1.ImageRepository](t, cloudHost, store.Options{})}
	w.registry = newRegistries(t, w.Cloud)
	w.Access.Transports = w.registry.network.Pool(t, nil)
	w.Start(func() reconcile.Reconciler { return New(w.Shared.Shared, w.Access) })
	return w
}

// tenant makes a repository with these tags. Only the tenant's role may list the repository. The
// namespace gets the accounts puller and other. The role trusts only puller.
func (w *world) tenant(namespace string, tags ...string) {
	w.T.Helper()
	w.Cloud.Trust("role/"+namespace, "system:serviceaccount:"+namespace+":puller")
	for _, account := range []string{"puller", "other"} {
		w.Accounts.Put(w.T, namespace, account, "uid-"+namespace+"-"+account, map[string]string{"role": "role/" + namespace})
	}
	w.registry.roles[namespace+"/app"] = "role/" + namespace
	w.registry.tags[namespace+"/app"] = tags
}

// create stores an ImageRepository for the tenant's repository. The function edit may change the
// object first.
func (w *world) create(namespace, name string, edit func(*v1alpha1.ImageRepository)) *v1alpha1.ImageRepository {
	w.T.Helper()
	return w.Create(&v1alpha1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ImageRepositorySpec{
			Image:          cloudHost + "/" + namespace + "/app",
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{Provider: "aws", ServiceAccountName: "puller"}},
			ExclusionList:  []string{v1alpha1.DefaultTagExclusion},
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: 10 * time.Minute}},
		},
	}, edit)
}

// wants checks the conditions Ready and Stalled.
func (w *world) wants(o *v1alpha1.ImageRepository, status metav1.ConditionStatus, reason, message string, stalled bool) {
	w.T.Helper()
	got := controllertest.Condition(o, meta.ConditionReady)
	if got.Status != status || got.Reason != reason || !strings.Contains(got.Message, message) {
		w.T.Errorf("Ready is %s, %s: %s\nwant %s, %s: …%s…", got.Status, got.Reason, got.Message, status, reason, message)
	}
	if is := controllertest.Condition(o, meta.ConditionStalled).Status == metav1.ConditionTrue; is != stalled {
		w.T.Errorf("stalled is %v", is)
	}
}

// registries is a server for all three hosts, which check credentials in different ways. It lists
// tags, fifty on a page.
type registries struct {
	cloud   *controllertest.Cloud
	network *controllertest.Network
	tags    map[string][]string // repository -> tags
	roles   map[string]string   // repository -> role that may list it

	mu       sync.Mutex
	asked    int // number of requested pages
	answered func(http.ResponseWriter, *http.Request) bool
}

func newRegistries(t *testing.T, c *controllertest.Cloud) *registries {
	t.Helper()
	g := &registries{cloud: c, tags: map[string][]string{}, roles: map[string]string{}}
	g.network = controllertest.NewNetwork(t, map[string]http.Handler{
		cloudHost: http.HandlerFunc(g.askCloud), passHost: http.HandlerFunc(g.askPassword), publicHost: http.HandlerFunc(g.list),
	})
	return g
}

// answer sets a function that may answer requests for pages of tags. If the function returns true,
// it has answered, and the registry sends no answer of its own.
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
