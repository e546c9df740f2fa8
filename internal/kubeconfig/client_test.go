package kubeconfig_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/kubeconfig"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// otherCluster is a cluster that a tenant chose.
type otherCluster struct {
	*httptest.Server

	clusters *kubeconfig.Clusters
	requests atomic.Int64
}

// newCluster starts an API server that knows ConfigMaps. The function answers requests for objects.
func newCluster(t *testing.T, answer http.HandlerFunc) *otherCluster {
	t.Helper()
	c := &otherCluster{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1":
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[
				{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["get"]},{"name":"configmaps/status","kind":"Status","namespaced":true}]}`)
		case "/apis/example.com":
			_, _ = fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"version":"v1"},{"version":"v2"}],"preferredVersion":{"version":"v2"}}`)
		case "/apis/example.com/v1", "/apis/example.com/v2":
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"widgets","kind":"Widget"}]}`)
		case "/apis/example.com/v3", "/apis/missing.example.com":
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		default:
			answer(w, r)
		}
	}))
	t.Cleanup(c.Close)
	scheme := runtime.NewScheme()
	must.Succeed(t, corev1.AddToScheme(scheme))
	allowed, err := endpoint.ParseAllowed(strings.TrimPrefix(c.URL, "https://"))
	must.Succeed(t, err)
	c.clusters = &kubeconfig.Clusters{Guard: endpoint.Guard{AllowHosts: allowed}, Scheme: scheme, UserAgent: "lanyard-test"}
	return c
}

// file returns a kubeconfig file for the cluster.
func (c *otherCluster) file(more string) string {
	return file("server: '"+c.URL+"', certificate-authority-data: "+encode("CERTIFICATE", c.Certificate().Raw)+more, "token: s3cret")
}

// connect returns a client of the cluster.
func (c *otherCluster) connect(ctx context.Context, t *testing.T, user string) *kubeconfig.Client {
	t.Helper()
	made, err := c.clusters.Connect(ctx, []byte(c.file("")), kubeconfig.Use{Impersonate: user})
	must.Succeed(t, err)
	t.Cleanup(made.Close)
	return made
}

// get reads a ConfigMap.
func get(ctx context.Context, c client.Client) error {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("ConfigMap")
	return c.Get(ctx, client.ObjectKey{Namespace: "apps", Name: "a"}, o)
}

const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"apps","name":"a"}}`

// TestConnect checks what a server gets: the file's credential, and an impersonated user if there
// is one.
func TestConnect(t *testing.T) {
	for _, user := range []string{"", "system:serviceaccount:team-a:deployer"} {
		c := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
			impersonated, ok := r.Header["Impersonate-User"]
			if r.Header.Get("Authorization") != "Bearer s3cret" || ok != (user != "") || ok && impersonated[0] != user {
				t.Errorf("the server gets %v", r.Header)
			}
			if r.UserAgent() != "lanyard-test" || !strings.HasPrefix(r.Host, "127.0.0.1:") || strings.Contains(strings.Join(r.Header["Accept"], " "), "protobuf") {
				t.Errorf("the server gets %v", r.Header)
			}
			_, _ = fmt.Fprint(w, configMap)
		})
		client := c.connect(t.Context(), t, user)
		must.Succeed(t, get(t.Context(), client))
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		metadata.Namespace, metadata.Name = "apps", "a"
		if err := client.Get(t.Context(), kubeKey(metadata), metadata); err != nil {
			t.Errorf("metadata: %v", err)
		}
	}
}

func kubeKey(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

// TestHostileServer checks that answers of a hostile server are errors, and cost little.
func TestHostileServer(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"large": {func(w http.ResponseWriter, _ *http.Request) {
			for range 9 {
				_, _ = fmt.Fprint(w, strings.Repeat(" ", 1<<20))
			}
		}, "larger than 8 MiB"},
		"redirect": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://elsewhere.example.com/")
			w.Header().Del("Content-Type")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "redirects to another address"},
		"protobuf": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			_, _ = fmt.Fprint(w, "k8s\x00")
		}, "not with JSON"},
		"page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprint(w, "<html>")
		}, "not with JSON"},
		"another object": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, strings.Replace(configMap, `"a"`, `"b"`, 1))
		}, "another object than it was asked for"},
		"many managers": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, strings.Replace(configMap, `"name"`, `"managedFields":[`+strings.Repeat("{},", 100)+`{}],"name"`, 1))
		}, "metadata that no API server accepts"},
		"many fields": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, strings.Replace(configMap, `"name"`, `"managedFields":[{"fieldsV1":{"a":[`+strings.Repeat("1,", 20_000)+`1]}}],"name"`, 1))
		}, "metadata that no API server accepts"},
		"damaged metadata": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, strings.Replace(configMap, `"name"`, `"labels":["x"],"name"`, 1))
		}, "metadata that no API server accepts"},
		"long version": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, strings.Replace(configMap, `"name"`, `"resourceVersion":"`+strings.Repeat("1", 1000)+`","name"`, 1))
		}, "metadata that no API server accepts"},
		"strange code": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599) }, "no status code of HTTP"},
		"wait": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "100000")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprint(w, `{"kind":"Status","status":"Failure","reason":"TooManyRequests","message":"too many requests","code":429}`)
		}, "many requests"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, c.answer)
			client := cluster.connect(t.Context(), t, "")
			if err := get(t.Context(), client); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			// The list of kinds, and the object.
			if n := cluster.requests.Load(); n > 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
	// An API server tells most failures as JSON, and some as text.
	missing := newCluster(t, http.NotFound)
	if err := get(t.Context(), missing.connect(t.Context(), t, "")); !apierrors.IsNotFound(err) {
		t.Errorf("text: %v", err)
	}
}

// TestOtherAnswers checks that a patch and a list cannot bring other objects.
func TestOtherAnswers(t *testing.T) {
	answer := strings.Replace(configMap, `"a"`, `"b"`, 1)
	cluster := newCluster(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, answer) })
	c := cluster.connect(t.Context(), t, "")
	o := &unstructured.Unstructured{}
	must.Succeed(t, o.UnmarshalJSON([]byte(configMap)))
	if err := c.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte("{}"))); err == nil || !strings.Contains(err.Error(), "another object") {
		t.Errorf("another name: %v", err)
	}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	for name, ok := range map[string]bool{"a": true, strings.Repeat("a", 1000): false} {
		answer = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{},"items":[{"metadata":{"name":"` + name + `"}}]}`
		if err := c.List(t.Context(), page); (err == nil) != ok {
			t.Errorf("a name with %d characters: %v", len(name), err)
		}
	}
}

// TestRefusedDiscovery checks that the API server's own words arrive if it does not list its kinds.
func TestRefusedDiscovery(t *testing.T) {
	cluster := newCluster(t, nil)
	cluster.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, `{"kind":"Status","status":"Failure","message":"User a cannot impersonate resource b","reason":"Forbidden","code":403}`)
	})
	client := cluster.connect(t.Context(), t, "system:serviceaccount:team-a:deployer")
	for _, err := range []error{get(t.Context(), client), second(client.RESTMapper().RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1"))} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot impersonate resource") {
			t.Errorf("%v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestHangingServer checks that all requests end with the context of the client. Requests for the
// list of kinds have no other context.
func TestHangingServer(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush() // the head of the answer
		<-r.Context().Done()
	}
	errEnd := errors.New("the test ends the work")
	for name, do := range map[string]func(*kubeconfig.Client) error{
		"object": func(c *kubeconfig.Client) error { return get(context.WithoutCancel(t.Context()), c) },
		"kinds": func(c *kubeconfig.Client) error {
			return second(c.RESTMapper().RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1"))
		},
	} {
		cluster := newCluster(t, hang)
		if name == "kinds" {
			cluster.Config.Handler = http.HandlerFunc(hang)
		}
		ctx, end := context.WithCancelCause(t.Context())
		client := cluster.connect(ctx, t, "")
		time.AfterFunc(100*time.Millisecond, func() { end(errEnd) })
		if err := do(client); !errors.Is(err, errEnd) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKinds checks how the kinds of a server are found.
func TestKinds(t *testing.T) {
	cluster := newCluster(t, http.NotFound)
	client := cluster.connect(t.Context(), t, "")
	discovered, err := client.Discover()
	must.Succeed(t, err)
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	for name, mapper := range map[string]apimeta.RESTMapper{"of the client": client.RESTMapper(), "discovered": discovered} {
		for want, versions := range map[string][]string{"v2": nil, "v1": {"v1"}} {
			found, err := mapper.RESTMapping(widget, versions...)
			if err != nil || found.Resource.Version != want || found.Resource.Resource != "widgets" || found.Scope.Name() != apimeta.RESTScopeNameRoot {
				t.Errorf("%s, versions %q: %+v, %v", name, versions, found, err)
			}
		}
		if all, err := mapper.RESTMappings(widget); err != nil || len(all) != 2 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
		for _, missing := range []error{
			second(mapper.RESTMapping(widget, "v3")), second(mapper.RESTMapping(schema.GroupKind{Group: "missing.example.com", Kind: "A"})),
			second(mapper.RESTMapping(schema.GroupKind{Kind: "Status"}, "v1")),
		} {
			if !apimeta.IsNoMatchError(missing) {
				t.Errorf("%s: %v", name, missing)
			}
		}
		before := cluster.requests.Load()
		_, _ = mapper.RESTMapping(widget, "v1")
		_, _ = mapper.RESTMapping(widget, "v3")
		if n := cluster.requests.Load() - before; n != map[string]int64{"of the client": 1, "discovered": 0}[name] {
			t.Errorf("%s: %d requests for known and missing kinds", name, n)
		}
	}
}

// TestNewKind checks that a client finds a kind that its server gets later.
func TestNewKind(t *testing.T) {
	cluster := newCluster(t, http.NotFound)
	served := `[]`
	cluster.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/apis/down.example.com/v1" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":`+served+`}`)
	})
	mapper := cluster.connect(t.Context(), t, "").RESTMapper()
	widget, gadget := schema.GroupKind{Group: "example.com", Kind: "Widget"}, schema.GroupKind{Group: "example.com", Kind: "Gadget"}
	for _, next := range []string{`[{"name":"widgets","kind":"Widget"}]`, `[{"name":"widgets","kind":"Widget"},{"name":"gadgets","kind":"Gadget"}]`} {
		if _, err := mapper.RESTMapping(gadget, "v1"); !apimeta.IsNoMatchError(err) {
			t.Errorf("a kind before it exists: %v", err)
		}
		served = next
		must.Succeed(t, second(mapper.RESTMapping(widget, "v1")))
	}
	must.Succeed(t, second(mapper.RESTMapping(gadget, "v1")))
	// A group that cannot be read does not hide the others.
	down := schema.GroupKind{Group: "down.example.com", Kind: "Widget"}
	for range 2 {
		if _, err := mapper.RESTMapping(down, "v1"); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a group that cannot be read: %v", err)
		}
	}
	must.Succeed(t, second(mapper.RESTMapping(widget, "v1")))
}

// TestLongFailure checks that the texts of a failure are cut.
func TestLongFailure(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	cluster := newCluster(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":"Invalid","code":422,"details":{"name":%q,"causes":[{"field":%q}]}}`, long, long, long)
	})
	err := get(t.Context(), cluster.connect(t.Context(), t, ""))
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		t.Fatal(err)
	}
	if got := status.Status(); len(err.Error()) > 10_000 || len(got.Details.Name) > 10_000 || len(got.Details.Causes[0].Field) > 10_000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

// TestMemoryOfAnswers checks that the memory of some answers is taken from the account of the
// client, or that of all answers.
func TestMemoryOfAnswers(t *testing.T) {
	const values = 5_000 // 3 MB with their commas
	cluster := newCluster(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, strings.Replace(configMap, "}}", `},"data":{"a":[`+strings.Repeat("[],", values)+`[]]}}`, 1))
	})
	for name, c := range map[string]struct {
		memory  int64
		retains bool
		fails   bool
	}{"a little memory": {10 << 20, false, true}, "for the last answers": {80 << 20, false, false}, "for all answers": {80 << 20, true, true}} {
		ctx, end := context.WithCancelCause(t.Context())
		ctx, closed := reserve.New(c.memory).Open(ctx, "team-a", end)
		client, err := cluster.clusters.Connect(ctx, []byte(cluster.file("")), kubeconfig.Use{Retains: c.retains})
		must.Succeed(t, err)
		for range 60 {
			err = errors.Join(err, get(ctx, client))
		}
		if errors.Is(err, reserve.ErrEnded) != c.fails || (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		client.Close()
		closed()
	}
}

// TestRefusedAddress checks which servers and proxies are refused.
func TestRefusedAddress(t *testing.T) {
	cluster := newCluster(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, configMap) })
	address := strings.TrimPrefix(cluster.URL, "https://")
	for name, c := range map[string]struct {
		allowed, server, proxy string
		says                   string // empty if the server is reached
	}{
		"allowed":             {address, address, "", ""},
		"loopback":            {"", address, "", "loopback"},
		"private":             {"", "10.0.0.1:6443", "", "in --deny-cidrs"},
		"proxy":               {"", "api.example.com", address, "loopback"},
		"target of a proxy":   {address, "169.254.169.254", address, "metadata service"},
		"target without port": {address, "localhost", address, "loopback"},
	} {
		var allowed endpoint.Allowed
		if c.allowed != "" {
			var err error
			allowed, err = endpoint.ParseAllowed(c.allowed)
			must.Succeed(t, err)
		}
		clusters := &kubeconfig.Clusters{Guard: endpoint.Guard{AllowHosts: allowed}, Scheme: runtime.NewScheme()}
		fields := "server: 'https://" + c.server + "', certificate-authority-data: " + encode("CERTIFICATE", cluster.Certificate().Raw)
		if c.proxy != "" {
			fields += ", proxy-url: 'http://" + c.proxy + "'"
		}
		client, err := clusters.Connect(t.Context(), []byte(file(fields, "token: s3cret")), kubeconfig.Use{})
		if err == nil {
			err = get(t.Context(), client)
			client.Close()
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		refused, ok := errors.AsType[*kubeconfig.AddressError](err)
		if _, known := errors.AsType[*endpoint.AddressError](err); ok != (c.says != "") || known != ok {
			t.Errorf("%s: the error is %T", name, err)
		}
		if ok && !strings.Contains(refused.NextStep(), "--allowed-endpoint-hosts") {
			t.Errorf("%s: the next step is %q", name, refused.NextStep())
		}
	}
}

// TestCluster checks what identifies a cluster.
func TestCluster(t *testing.T) {
	cluster := func(server, user, impersonated string) string {
		c, err := (&kubeconfig.Clusters{Scheme: runtime.NewScheme()}).Connect(t.Context(), []byte(file("server: 'https://"+server+"'", user)), kubeconfig.Use{Impersonate: impersonated})
		must.Succeed(t, err)
		defer c.Close()
		return c.Cluster()
	}
	same := cluster("a.example.com", "token: old", "")
	if same != cluster("a.example.com", "token: new", "") || strings.Contains(same, "old") {
		t.Errorf("the credential is part of %q", same)
	}
	if same == cluster("b.example.com", "token: old", "") || same == cluster("a.example.com", "token: old", "me") {
		t.Error("two clusters or users are the same")
	}
}
