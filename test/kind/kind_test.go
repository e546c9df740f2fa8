package kind_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/charts"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/cli"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/test/kind"
	"github.com/lanyard-dev/lanyard/test/kind/taglist"
	"github.com/lanyard-dev/lanyard/test/kind/v1alpha1"
)

// table returns the table of Lanyard's kinds, with the kind TagList added.
func table() kinds.Table { return append(kinds.All(), kind.TagList()) }

const host = "cloud.example.com"

// newWorld returns a test environment with a TagList of tenant-a, and a registry that accepts only
// the tenant's role.
func newWorld(t *testing.T) (*controllertest.World[*v1alpha1.TagList], *v1alpha1.TagList) {
	t.Helper()
	w := controllertest.New[*v1alpha1.TagList](t, host, store.Options{}, kind.TagList())
	w.Cloud.Trust("role/a", "system:serviceaccount:tenant-a:reader")
	w.Accounts.Put(t, "tenant-a", "reader", "uid-a", map[string]string{"role": "role/a"})
	network := controllertest.NewNetwork(t, map[string]http.Handler{host: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if role, _ := w.Cloud.Holder(password); role != "role/a" {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(rw, `{"name": "app", "tags": ["1.0.0", "1.1.0"]}`)
	})})
	w.Access.Transports = network.Pool(t, nil)
	w.Start(func() reconcile.Reconciler { return taglist.New(w.Shared, kind.TagList(), w.Access) })
	return w, w.Create(&v1alpha1.TagList{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"},
		Spec: v1alpha1.TagListSpec{
			URL:      "oci://" + host + "/app",
			Access:   toolkitv1.Access{Provider: "aws", ServiceAccountName: "reader"},
			Schedule: toolkitv1.Schedule{Interval: metav1.Duration{Duration: time.Minute}},
		},
	}, nil)
}

func TestConformance(t *testing.T) {
	controllertest.Run(t, func(t *testing.T) *controllertest.Case[*v1alpha1.TagList] {
		t.Helper()
		return controllertest.CaseOf(newWorld(t))
	})
}

// TestCommands checks that `lanyard status` and `lanyard explain` show a TagList.
func TestCommands(t *testing.T) {
	w, o := newWorld(t)
	if _, err := w.Reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, w.Kube.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "reader"}}))
	server := httptest.NewServer(apiServer{w.Kube})
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": %q}}],
		"users": [{"name": "c", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "tenant-a"}}]}`, server.URL)
	must.Succeed(t, os.WriteFile(kubeconfig, []byte(config), 0o600))
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"status"}, []string{"taglist/app", "role/a", "Pulled"}},
		{[]string{"explain", "ltl/app"}, []string{"taglist/app in namespace tenant-a: Pulled", "system:serviceaccount:tenant-a:reader", "in process, to " + host}},
	} {
		var out, messages bytes.Buffer
		status := cli.Run(t.Context(), test.args, cli.IO{IO: frame.IO{
			Kinds: table(), In: strings.NewReader(""), Out: &out, Err: &messages,
			Env: func(name string) string { return map[string]string{"KUBECONFIG": kubeconfig}[name] },
		}})
		for _, want := range test.want {
			if status != 0 || !strings.Contains(out.String(), want) {
				t.Errorf("%q: status %d, %s\nwant %q in:\n%s", test.args, status, &messages, want, &out)
			}
		}
	}
}

// apiServer answers discovery requests. It also answers get and list requests for ServiceAccounts
// and for the kinds in the table.
type apiServer struct{ objects client.Client }

func served() kinds.Table {
	return append(table(), kinds.Kind{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), Plural: "serviceaccounts",
		New: func() kinds.Resource { return &corev1.ServiceAccount{} }, NewList: func() kinds.List { return &corev1.ServiceAccountList{} },
	})
}

func (s apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer, err := s.answer(r.Context(), strings.Split(strings.Trim(r.URL.Path, "/"), "/"))
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Message: err.Error(), Code: http.StatusNotFound}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (s apiServer) answer(ctx context.Context, path []string) (any, error) {
	switch {
	case len(path) == 1 && path[0] == "api":
		return metav1.APIVersions{Versions: []string{"v1"}}, nil
	case len(path) == 1:
		var list metav1.APIGroupList
		for _, group := range []string{"toolkit.lanyard.dev", "identity.lanyard.dev", "infrastructure.lanyard.dev"} {
			version := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1alpha1", Version: "v1alpha1"}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
		}
		return list, nil
	case path[0] == "api":
		path = append([]string{"apis", ""}, path[1:]...) // the core group's name is empty
	}
	group, version, rest := path[1], path[2], path[3:]
	known := served().Where(func(k kinds.Kind) bool { return k.Group == group && k.Version == version })
	if len(rest) == 0 {
		list := metav1.APIResourceList{GroupVersion: strings.Trim(group+"/"+version, "/")}
		for _, k := range known {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.Plural, Kind: k.Kind, Namespaced: !k.ClusterScoped})
		}
		return list, nil
	}
	namespace := ""
	if len(rest) > 2 && rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	k, ok := known.Written(rest[0])
	switch {
	case !ok:
		return nil, errors.New("there is no such resource")
	case len(rest) == 1:
		list := k.NewList()
		return list, s.objects.List(ctx, list.(client.ObjectList), client.InNamespace(namespace))
	default:
		o := k.New()
		err := s.objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: rest[1]}, o)
		o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind) // set the kind again, which the client removed
		return o, err
	}
}

// TestChart renders the chart as if TagList were one of Lanyard's kinds. Each rule for Buckets must
// also apply to TagLists, because both kinds keep artifacts.
func TestChart(t *testing.T) {
	files, err := charts.Lanyard()
	must.Succeed(t, err)
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(dir, files))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "templates", "_kinds.tpl"), []byte(table().ChartTemplate()), 0o600))
	loaded, err := loader.LoadDir(dir)
	must.Succeed(t, err)
	chosen := map[string]any{"image": map[string]any{"repository": "registry.example.com/lanyard"}}
	values, err := chartutil.ToRenderValues(loaded, chosen, chartutil.ReleaseOptions{Name: "lanyard", Namespace: "lanyard-system"}, chartutil.DefaultCapabilities)
	must.Succeed(t, err)
	rendered, err := engine.Render(loaded, values)
	must.Succeed(t, err)
	rules := 0
	for _, text := range rendered {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "resources:") && strings.Contains(line, "buckets") {
				rules++
				if !strings.Contains(line, "taglists") {
					t.Errorf("a rule without TagLists: %s", line)
				}
			}
		}
	}
	if rules < 4 {
		t.Errorf("the chart has %d rules about Buckets", rules)
	}
}

// TestUsers checks that a TagList counts as a user of a lent identity, so that the identity stays
// while the TagList uses it.
func TestUsers(t *testing.T) {
	w := identitytest.New(t)
	lent := w.Static("lent", identitytest.Admits("team-a"))
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), table().AddToScheme(scheme)))
	memory := &memory{builder: fake.NewClientBuilder().WithScheme(scheme)}
	users, err := awsidentity.NewUsers(t.Context(), memory, &informertest.FakeInformers{Scheme: scheme}, memory, w.Identities, table())
	must.Succeed(t, err)
	memory.Reader = memory.builder.WithObjects(&v1alpha1.TagList{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app"},
		Spec:       v1alpha1.TagListSpec{Access: toolkitv1.Access{Provider: "aws", IdentityRef: &meta.AWSIdentityReference{Kind: identityv1.AWSClusterStaticIdentityKind, Name: "lent"}}},
	}).Build()
	if n, err := users.Count(t.Context(), lent); err != nil || n != 1 {
		t.Errorf("%d users, %v", n, err)
	}
}

// memory holds objects in memory. As in a manager, indexes are added before the objects.
type memory struct {
	client.Reader

	builder *fake.ClientBuilder
}

// IndexField implements client.FieldIndexer.
func (m *memory) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	m.builder.WithIndex(o, field, values)
	return nil
}
