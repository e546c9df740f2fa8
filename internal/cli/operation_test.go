package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	group       = "/apis/toolkit.lanyard.dev/v1alpha1"
	requestedAt = "lanyard.dev/reconcile-requested-at"
	fluxAsked   = "reconcile.fluxcd.io/requestedAt"
)

// object is a JSON object.
type object = map[string]any

// fakeCluster is an API server with objects of namespace tenant-a, and a controller for them.
type fakeCluster struct {
	// controller changes an object as the controller does. It is called at each read after a patch.
	// The first of these reads has number 1.
	controller func(o object, read int)
	// refuse is the HTTP status of every patch; 0 accepts.
	refuse int

	mu      sync.Mutex
	objects map[string]object // by plural and name, "buckets/app"
	patched map[string]int    // number of reads since the patch
}

// pluralsOfKinds returns the kinds by plural.
func pluralsOfKinds() map[string]string {
	return map[string]string{"buckets": "Bucket", "ocirepositories": "OCIRepository", "imagerepositories": "ImageRepository"}
}

// newFakeCluster starts a cluster with the named objects, such as buckets/data. The last arguments
// name those objects that are suspended.
func newFakeCluster(t *testing.T, names []string, suspended ...string) (*fakeCluster, string) {
	t.Helper()
	f := &fakeCluster{objects: map[string]object{}, patched: map[string]int{}}
	for _, name := range names {
		plural, name, _ := strings.Cut(name, "/")
		key := plural + "/" + name
		f.objects[key] = object{
			"apiVersion": "toolkit.lanyard.dev/v1alpha1", "kind": pluralsOfKinds()[plural],
			"metadata": object{"name": name, "namespace": "tenant-a", "generation": 1, "annotations": object{fluxAsked: "2099-01-01T00:00:00Z"}},
			"spec":     object{"url": "oci://registry.example.com/" + name, "suspend": slices.Contains(suspended, key)},
			"status": object{
				"observedGeneration": 1, "artifact": object{"revision": "1.0.0@sha256:3b4c0d0e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c"},
				"conditions": []any{condition("Ready", "True", "Succeeded", "stored artifact for revision 1.0.0")},
			},
		}
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, writeKubeconfig(t, server.URL)
}

// writeKubeconfig writes the kubeconfig of a user of namespace tenant-a at a server.
func writeKubeconfig(t *testing.T, server string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "c", "user": {}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "tenant-a"}}]}`, server)
	must.Succeed(t, os.WriteFile(path, []byte(config), 0o600))
	return path
}

func condition(kind, status, reason, message string) object {
	return object{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-02T03:04:05Z"}
}

func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	status, answer := f.answer(r)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *fakeCluster) answer(r *http.Request) (int, any) {
	namespaced, ok := strings.CutPrefix(r.URL.Path, group+"/namespaces/tenant-a/")
	plural, _, named := strings.Cut(namespaced, "/")
	switch {
	case r.URL.Path == "/api":
		return http.StatusOK, object{"kind": "APIVersions", "versions": []string{"v1"}}
	case r.URL.Path == "/api/v1":
		return http.StatusOK, object{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
			object{"name": "namespaces", "singularName": "namespace", "kind": "Namespace", "verbs": []string{"list"}},
		}}
	case r.URL.Path == "/api/v1/namespaces":
		return http.StatusOK, object{"kind": "NamespaceList", "apiVersion": "v1", "items": []any{
			object{"metadata": object{"name": "tenant-b"}}, object{"metadata": object{"name": "tenant-a"}}, object{"metadata": object{"name": "default"}},
		}}
	case r.URL.Path == "/apis":
		version := object{"groupVersion": "toolkit.lanyard.dev/v1alpha1", "version": "v1alpha1"}
		return http.StatusOK, object{"kind": "APIGroupList", "groups": []any{
			object{"name": "toolkit.lanyard.dev", "versions": []any{version}, "preferredVersion": version},
		}}
	case r.URL.Path == group:
		var resources []any
		for plural, kind := range pluralsOfKinds() {
			resources = append(resources, object{"name": plural, "singularName": strings.ToLower(kind), "namespaced": true, "kind": kind, "verbs": []string{"list"}})
		}
		return http.StatusOK, object{"kind": "APIResourceList", "groupVersion": "toolkit.lanyard.dev/v1alpha1", "resources": resources}
	case ok && named:
		return f.one(r, namespaced)
	case ok:
		items := []any{}
		for _, key := range slices.Sorted(maps.Keys(f.objects)) {
			if strings.HasPrefix(key, plural+"/") {
				items = append(items, f.objects[key])
			}
		}
		return http.StatusOK, object{"kind": pluralsOfKinds()[plural] + "List", "apiVersion": "toolkit.lanyard.dev/v1alpha1", "items": items}
	case strings.HasPrefix(r.URL.Path, group+"/namespaces/"):
		return http.StatusOK, object{"kind": pluralsOfKinds()[path.Base(r.URL.Path)] + "List", "apiVersion": "toolkit.lanyard.dev/v1alpha1", "items": []any{}}
	}
	return failure(http.StatusNotFound, "NotFound")
}

func failure(status int, reason string) (int, any) {
	return status, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": "it is " + reason, "code": status}
}

// one handles r, a request to read or patch a single object.
func (f *fakeCluster) one(r *http.Request, key string) (int, any) {
	o := f.objects[key]
	if o == nil {
		return failure(http.StatusNotFound, "NotFound")
	}
	if r.Method == http.MethodPatch {
		if f.refuse != 0 {
			return failure(f.refuse, "Forbidden")
		}
		var patch object
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
			return failure(http.StatusBadRequest, "BadRequest")
		}
		if patch["spec"] != nil {
			o["metadata"].(object)["generation"] = o["metadata"].(object)["generation"].(int) + 1
		}
		merge(o, patch)
		f.patched[key] = 0
		return http.StatusOK, o
	}
	if _, patched := f.patched[key]; patched && f.controller != nil {
		f.patched[key]++
		f.controller(o, f.patched[key])
	}
	return http.StatusOK, o
}

// merge applies a JSON merge patch to an object (RFC 7396).
func merge(into, patch object) {
	for name, value := range patch {
		inner, isMap := value.(object)
		former, wasMap := into[name].(object)
		switch {
		case value == nil:
			delete(into, name)
		case isMap && wasMap:
			merge(former, inner)
		default:
			into[name] = value
		}
	}
}

// handled writes the status of an object as the controller does after it has reconciled the object.
func handled(o object, conditions ...any) {
	meta, status := o["metadata"].(object), o["status"].(object)
	status["observedGeneration"] = meta["generation"]
	if annotations := meta["annotations"].(object); annotations[requestedAt] != nil {
		status["lastHandledReconcileAt"] = annotations[requestedAt]
		if later := annotations[fluxAsked]; later != nil {
			status["lastHandledReconcileAt"] = later
		}
	}
	status["conditions"] = conditions
}

var (
	succeeded = condition("Ready", "True", "Succeeded", "stored artifact for revision 1.1.0")
	refused   = condition("Ready", "False", "TrustRefused", "role r does not trust the subject\u202e\x1b[2J")
	suspended = condition("Ready", "True", "Suspended", "suspended; the last result stays: stored artifact for revision 1.0.0")
)

// TestOperations checks the output and the exit status of the commands that change objects.
func TestOperations(t *testing.T) {
	retries := func(o object, read int) {
		switch read {
		case 1: // the controller has not seen the patch
		case 2:
			handled(o, refused, condition("Reconciling", "True", "ProgressingWithRetry", "again"))
		default:
			handled(o, succeeded)
		}
	}
	suspends := func(o object, read int) {
		if read > 1 {
			handled(o, suspended)
		}
	}
	stalls := func(o object, _ int) { handled(o, refused, condition("Stalled", "True", "TrustRefused", "again")) }
	for name, tt := range map[string]struct {
		args       string
		controller func(object, int)
		refuse     int
		status     int
	}{
		"reconcile":                  {"reconcile ocirepository/app", retries, 0, 0},
		"reconcile-json":             {"reconcile ocirepository/app -o json", retries, 0, 0},
		"reconcile-two":              {"reconcile OCIRepository/app buckets.toolkit.lanyard.dev/data bucket/data", retries, 0, 0},
		"reconcile-all":              {"reconcile --all", retries, 0, 0},
		"reconcile-stalled":          {"reconcile ocirepository/app bucket/data", stalls, 0, frame.Failed},
		"reconcile-timeout":          {"reconcile ocirepository/app --timeout 100ms", nil, 0, frame.Failed},
		"reconcile-suspended":        {"reconcile bucket/old", nil, 0, frame.Failed},
		"reconcile-no-wait":          {"reconcile ocirepository/app --timeout 0", nil, 0, 0},
		"reconcile-missing":          {"reconcile imagerepository/app", nil, 0, frame.Failed},
		"reconcile-forbidden":        {"reconcile ocirepository/app", nil, http.StatusForbidden, frame.Failed},
		"reconcile-empty-namespace":  {"reconcile --all -n empty", nil, 0, frame.Failed},
		"suspend":                    {"suspend ocirepository/app", suspends, 0, 0},
		"suspend-all":                {"suspend --all", suspends, 0, 0},
		"suspend-suspended":          {"suspend bucket/old", suspends, 0, 0},
		"suspend-timeout":            {"suspend ocirepository/app --timeout 100ms", nil, 0, frame.Failed},
		"suspend-resumed-meanwhile":  {"suspend ocirepository/app", func(o object, _ int) { o["spec"].(object)["suspend"] = false }, 0, frame.Failed},
		"resume":                     {"resume bucket/old", retries, 0, 0},
		"resume-all":                 {"resume --all", retries, 0, 0},
		"resume-refused":             {"resume bucket/old", stalls, 0, frame.Failed},
		"resume-suspended-meanwhile": {"resume bucket/old", func(o object, _ int) { o["spec"].(object)["suspend"] = true }, 0, frame.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, kubeconfig := newFakeCluster(t, []string{"ocirepositories/app", "buckets/data", "buckets/old"}, "buckets/old")
			f.controller, f.refuse = tt.controller, tt.refuse
			c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
			if status := c.run(t.Context(), strings.Fields(tt.args)...); status != tt.status {
				t.Errorf("status %d", status)
			}
			said := strings.ReplaceAll(c.err.String(), hostOf(t, kubeconfig), "http://cluster")
			golden.Compare(t, "testdata/operation-"+name+".golden", fmt.Appendf(nil, "$ lanyard %s\n%s%s", tt.args, said, c.out.String()))
		})
	}
}

// TestRenewOfWhatNobodyRenews checks that renew refuses a source with an identity other than a
// WorkloadIdentity. The controller would ignore the annotation that requests the renewal. The
// annotation would then stay on the source for ever.
func TestRenewOfWhatNobodyRenews(t *testing.T) {
	f, kubeconfig := newFakeCluster(t, []string{"ocirepositories/app", "buckets/data"})
	f.objects["ocirepositories/app"]["spec"].(object)["identityRef"] = object{"kind": "AWSClusterRoleIdentity", "name": "reader"}
	f.objects["buckets/data"]["spec"].(object)["workloadIdentityName"] = "app"
	f.controller = func(o object, _ int) { o["metadata"].(object)["annotations"] = object{} }
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := c.run(t.Context(), "renew", "ocirepository/app"); status != frame.Failed || !strings.Contains(c.err.String(), "ocirepository/app names no WorkloadIdentity") {
		t.Errorf("status %d: %s", status, c.err.String())
	}
	all := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := all.run(t.Context(), "renew", "--all", "-o", "json"); status != 0 || strings.Contains(all.out.String(), `"app"`) {
		t.Errorf("status %d: %s, prints %s", status, all.err.String(), all.out.String())
	}
	if _, patched := f.patched["ocirepositories/app"]; patched {
		t.Error("an object that nobody renews has the annotation")
	}
}

// hostOf returns the URL of a kubeconfig's cluster.
func hostOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	data, err := os.ReadFile(kubeconfig)
	must.Succeed(t, err)
	_, rest, _ := strings.Cut(string(data), `"server": "`)
	host, _, _ := strings.Cut(rest, `"`)
	return host
}

// TestNothingToSuspend checks that suspend --all succeeds if all objects are suspended already.
func TestNothingToSuspend(t *testing.T) {
	_, kubeconfig := newFakeCluster(t, []string{"buckets/old"}, "buckets/old")
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := c.run(t.Context(), "suspend", "--all"); status != 0 || c.err.String() != "There is nothing to do in namespace tenant-a.\n" {
		t.Errorf("status %d: %s", status, c.err.String())
	}
}

// TestRequestOfSomebodyElse checks that reconcile also succeeds if the controller handles a later
// request of another client.
func TestRequestOfSomebodyElse(t *testing.T) {
	f, kubeconfig := newFakeCluster(t, []string{"buckets/data"})
	f.controller = func(o object, _ int) {
		o["metadata"].(object)["annotations"].(object)[requestedAt] = "2099-01-01T00:00:00Z"
		handled(o, succeeded)
	}
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := c.run(t.Context(), "reconcile", "bucket/data"); status != 0 {
		t.Errorf("status %d: %s", status, c.err.String())
	}
}

// TestInterrupted checks that a waiting command, once interrupted, prints only one more line.
func TestInterrupted(t *testing.T) {
	f, kubeconfig := newFakeCluster(t, []string{"buckets/data"})
	ctx, stop := context.WithCancel(t.Context())
	f.controller = func(_ object, read int) {
		if read == 2 {
			time.AfterFunc(10*time.Millisecond, stop)
		}
	}
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := c.run(ctx, "reconcile", "bucket/data"); status != frame.Interrupted {
		t.Errorf("status %d", status)
	}
	if want := "bucket/data: reconciliation is requested\nlanyard: interrupted\n"; c.err.String() != want || c.out.Len() > 0 {
		t.Errorf("says %q, prints %q", c.err.String(), c.out.String())
	}
}

// TestCompletion compares the words that the shell offers with a golden file.
func TestCompletion(t *testing.T) {
	_, kubeconfig := newFakeCluster(t, []string{"ocirepositories/app", "ocirepositories/api", "buckets/old"}, "buckets/old")
	var all bytes.Buffer
	for _, words := range [][]string{
		{"reconcile", ""},
		{"reconcile", "ocirepository/ap"},
		{"reconcile", "ocirepository/app", ""},
		{"reconcile", "loci/app", "OCIRepository/a"},
		{"suspend", "b"},
		{"explain", "loci/a"},
		{"explain", "bucket/old", ""},
		{"resume", ""},
		{"reconcile", "-n", ""},
		{"status", "--namespace", "tenant"},
		{"suspend", "--timeout", ""},
		{"status", "-o", ""},
		{"--version", "-o", ""},
		{"help", "re"},
		{"status", "--kubeconfig", "/nowhere", "-n", ""},
	} {
		c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		if status := c.complete(t.Context(), words); status != 0 {
			t.Errorf("%q: status %d: %s", words, status, c.err.String())
		}
		fmt.Fprintf(&all, "$ lanyard %s<TAB>\n%s", strings.Join(words, " "), c.out.String())
	}
	golden.Compare(t, "testdata/completion.golden", all.Bytes())
}

// complete runs the command that completes a word for the shell. After [frame.CompletionTimeout],
// the command offers nothing. A busy machine may need longer, so complete tries up to five times.
func (c *command) complete(ctx context.Context, words []string) (status int) {
	for range 5 {
		c.out.Reset()
		c.err.Reset()
		began := time.Now()
		status = c.run(ctx, append([]string{"__complete"}, words...)...)
		if time.Since(began) < frame.CompletionTimeout {
			break
		}
	}
	return status
}

// TestFlagsOfferNoFiles asserts that the shell offers file names only for flags that may name a
// file.
func TestFlagsOfferNoFiles(t *testing.T) {
	for _, sub := range commands(newRoot(IO{IO: frame.IO{Kinds: kinds.All()}})) {
		sub.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" || f.Name == "help" { // the flag takes no value
				return
			}
			folderOnly := slices.Contains([]string{"lanyard pull artifact", "lanyard diff kustomization"}, sub.CommandPath())
			takesFile := strings.HasSuffix(f.Name, "kubeconfig") || f.Name == "output" && sub.Name() == "token" ||
				f.Name == "sa-token" || f.Name == "token-file" || f.Name == "path" && !folderOnly
			line := append(strings.Fields(sub.CommandPath())[1:], "--"+f.Name, "")
			var c command
			if status := c.run(t.Context(), append([]string{"__complete"}, line...)...); status != 0 {
				t.Errorf("%q: status %d: %s", line, status, c.err.String())
			}
			if offersFiles := strings.HasSuffix(c.out.String(), ":0\n"); offersFiles != takesFile {
				t.Errorf("%q: the shell offers files: %t", line, offersFiles)
			}
		})
	}
}
