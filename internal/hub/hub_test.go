package hub

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/memory/memorytest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestMemory measures the memory of large objects in the cache. The objects come from the hub: the
// cluster to which this package connects. Each object may take at most 20 KiB.
func TestMemory(t *testing.T) {
	memorytest.Run(t, caches(Options{Namespaces: Namespaces{"tenant-a": "spoke-tenant-a"}, KeyRing: ring}))
}

// world is a fake API server of a hub.
type world struct {
	*httptest.Server

	status atomic.Int32 // HTTP status of every answer; 0 is success
	mu     sync.Mutex
	asked  map[string]bool // the requests so far, each as path and field selector
}

var ring = types.NamespacedName{Namespace: "lanyard-system", Name: "issuer"}

const identityName = "banana"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{asked: map[string]bool{}}
	w.Server = httptest.NewTLSServer(w)
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

// ServeHTTP answers as an API server does. It refuses every request for the namespace hub-b.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.asked[strings.TrimSuffix(r.URL.Path+" "+r.URL.Query().Get("fieldSelector"), " ")] = true
	w.mu.Unlock()
	status := int(w.status.Load())
	if strings.Contains(r.URL.Path, "/hub-b/") {
		status = http.StatusForbidden
	}
	if r.URL.Query().Get("sendInitialEvents") != "" {
		// Refuse a watch-list: the client then sends a list request.
		status = http.StatusUnprocessableEntity
	}
	rw.Header().Set("Content-Type", "application/json")
	if status != 0 {
		rw.WriteHeader(status)
		_ = json.NewEncoder(rw).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(status),
			Reason: map[int]metav1.StatusReason{401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 422: metav1.StatusReasonInvalid}[status],
		})
		return
	}
	if r.URL.Query().Get("watch") != "" {
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	object := func(kind, namespace, name string) map[string]any {
		return map[string]any{
			"apiVersion": identityv1.GroupVersion().String(), "kind": kind,
			"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "u1", "resourceVersion": "1"}, "spec": map[string]any{},
		}
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/identity.lanyard.dev/v1alpha1/namespaces/"), "/")
	kind, name := map[string]string{"keyrings": "KeyRing", "workloadidentities": "WorkloadIdentity"}[parts[1]], map[string]string{"keyrings": ring.Name, "workloadidentities": identityName}[parts[1]]
	answer := object(kind, parts[0], name)
	if len(parts) == 2 {
		answer = map[string]any{
			"apiVersion": identityv1.GroupVersion().String(), "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{answer},
		}
	}
	_ = json.NewEncoder(rw).Encode(answer)
}

func (w *world) config() *rest.Config {
	return &rest.Config{Host: w.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw}),
	}}
}

func (w *world) hub(t *testing.T) *Hub {
	t.Helper()
	h, err := New(t.Context(), Options{Config: w.config(), Namespaces: Namespaces{"a": "hub-a", "b": "hub-b"}, KeyRing: ring})
	must.Succeed(t, err)
	return h
}

// start runs a hub until the test ends.
func start(t *testing.T, h *Hub) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestSpokeAsksForItsOwn checks that a spoke requests only objects that the command "lanyard hub
// grant" lets it read. If the hub refuses one namespace, the spoke can still read the others.
func TestSpokeAsksForItsOwn(t *testing.T) {
	w := newWorld(t)
	h := w.hub(t)
	start(t, h)
	subject, err := auth.WorkloadIdentity("hub-a", identityName)
	must.Succeed(t, err)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err = h.Identities.Lookup(t.Context(), subject); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	identity := &identityv1.WorkloadIdentity{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: "hub-a", Name: identityName}, identity); err != nil || identity.UID != "u1" {
		t.Errorf("%+v, %v", identity.ObjectMeta, err)
	}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: "hub-b", Name: identityName}, identity); err == nil {
		t.Error("an identity of a namespace that is not granted was read")
	} else if refused, ok := errors.AsType[*Error](err); !ok || refused.Reason != meta.ReasonHubRefused || !strings.Contains(err.Error(), "namespace hub-b") {
		t.Errorf("an identity of a namespace that is not granted: %v", err)
	}
	const base = "/apis/identity.lanyard.dev/v1alpha1/namespaces/"
	allowed := map[string]bool{
		base + "hub-a/workloadidentities": true, base + "hub-b/workloadidentities": true, base + "hub-b/workloadidentities/" + identityName: true,
		base + "lanyard-system/keyrings metadata.name=issuer": true, base + "lanyard-system/keyrings/issuer": true,
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for asked := range w.asked {
		if !allowed[asked] {
			t.Errorf("the spoke asked for %s", asked)
		}
	}
}

// TestState asserts the reason and text of each failure. While the hub fails, State must still
// return the time of the last good answer.
func TestState(t *testing.T) {
	w := newWorld(t)
	h := w.hub(t)
	told := 0
	h.Subscribe(func() { told++ })
	if got := h.State(); got.Err != nil || !got.Answered.IsZero() {
		t.Errorf("before the first question: %+v", got)
	}
	look := func() State {
		h.see(t.Context(), h.ask(t.Context()))
		return h.State()
	}
	answered := look()
	if answered.Err != nil || answered.Answered.IsZero() {
		t.Fatalf("%+v", answered)
	}
	for _, c := range []struct {
		status       int32
		reason, says string
	}{
		{http.StatusUnauthorized, meta.ReasonHubRefused, "write a new token"},
		{http.StatusForbidden, meta.ReasonHubRefused, "lanyard hub grant"},
		{http.StatusInternalServerError, meta.ReasonHubUnreachable, "HTTP 500"},
		{http.StatusServiceUnavailable, meta.ReasonHubUnreachable, "HTTP 503"},
	} {
		w.status.Store(c.status)
		got := look()
		if got.Err == nil || got.Err.Reason != c.reason || !got.Err.Since.Equal(answered.Answered) || !got.Answered.Equal(answered.Answered) ||
			!strings.Contains(got.Err.Error(), c.says) || !strings.Contains(got.Err.Error(), answered.Answered.Format(time.RFC3339)) {
			t.Errorf("HTTP %d: %+v", c.status, got.Err)
		}
	}
	w.status.Store(0)
	for range 2 {
		if look(); told != 1 {
			t.Errorf("subscribers were told %d times that the hub answers again", told)
		}
	}
	const said = `
		# HELP lanyard_hub_answers 1 if the hub answered the last question as it should, otherwise 0.
		# TYPE lanyard_hub_answers gauge
		lanyard_hub_answers %d
	`
	for status, want := range map[int32]int{http.StatusUnauthorized: 0, 0: 1} {
		w.status.Store(status)
		look()
		if err := testutil.CollectAndCompare(h, strings.NewReader(fmt.Sprintf(said, want)), "lanyard_hub_answers"); err != nil {
			t.Error(err)
		}
	}
}

// TestHubIsDown starts a spoke while its hub is down. After a failed probe, Get must return an
// [Error] within memoryTimeout.
func TestHubIsDown(t *testing.T) {
	w := newWorld(t)
	h := w.hub(t)
	w.Close()
	before := time.Now().Add(-time.Minute)
	start(t, h)
	for deadline := time.Now().Add(20 * time.Second); h.State().Err == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the hub is not found to be down")
		}
	}
	begin := time.Now()
	err := h.Get(t.Context(), client.ObjectKey{Namespace: "hub-a", Name: identityName}, &identityv1.WorkloadIdentity{})
	down, ok := errors.AsType[*Error](err)
	if !ok || down.Reason != meta.ReasonHubUnreachable || down.Since.Before(before) || time.Since(begin) > memoryTimeout {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}

// TestNamespaces checks that the method Set adds valid entries and refuses invalid ones. The method
// Of must return an error for a namespace that is not in the map.
func TestNamespaces(t *testing.T) {
	var n Namespaces
	for _, value := range []string{"a=hub-a,b=hub-b", "c=hub-a", "a=hub-a"} {
		must.Succeed(t, n.Set(value))
	}
	if got := n.String(); got != "a=hub-a,b=hub-b,c=hub-a" {
		t.Error(got)
	}
	if at, err := n.Of("c"); at != "hub-a" || err != nil {
		t.Errorf("%q, %v", at, err)
	}
	if at, err := n.Of("d"); at != "" {
		t.Errorf("%q", at)
	} else if refused, ok := errors.AsType[*NotMappedError](err); !ok || refused.Namespace != "d" {
		t.Error(err)
	}
	for _, value := range []string{"", "a", "a=", "=b", "*=hub-*", "a=hub-*", "A=b", "a=b=c", "a=hub-b", "a=b,", "a=../b", "a=b c"} {
		kept := n.String()
		if err := n.Set(value); err == nil || n.String() != kept {
			t.Errorf("%q: %v, and the map is %s", value, err, n.String())
		}
	}
}

// TestConfig checks which kubeconfig files are refused.
func TestConfig(t *testing.T) {
	for name, c := range map[string]struct{ cluster, user, says string }{
		"a token's file": {"server: https://hub.example.com", "tokenFile: token", ""},
		"plain HTTP":     {"server: http://hub.example.com", "tokenFile: token", "https"},
		"no server":      {"server: ''", "tokenFile: token", "kubeconfig"},
		"not verified":   {"server: https://hub.example.com, insecure-skip-tls-verify: true", "tokenFile: token", "insecure-skip-tls-verify"},
		"a program":      {"server: https://hub.example.com", "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}", "plugin"},
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: hub, contexts: [{name: hub, context: {cluster: hub, user: spoke}}],
			clusters: [{name: hub, cluster: {%s}}], users: [{name: spoke, user: {%s}}]}`, c.cluster, c.user)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		must.Succeed(t, os.WriteFile(filepath.Join(filepath.Dir(path), "token"), []byte("t"), 0o600))
		config, err := LoadConfig(path, "lanyard/test")
		if c.says == "" {
			if err != nil || config.BearerTokenFile != filepath.Join(filepath.Dir(path), "token") || config.UserAgent == "" {
				t.Errorf("%s: %+v, %v", name, config, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if _, err := LoadConfig(filepath.Join(t.TempDir(), "none"), ""); err == nil {
		t.Error("a file that does not exist is accepted")
	}
}
