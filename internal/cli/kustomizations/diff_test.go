package kustomizations

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// fields is a JSON object.
type fields = map[string]any

// Paths of the server.
const (
	core          = "/api/v1/namespaces/tenant-a/"
	kustomization = "/apis/toolkit.lanyard.dev/v1alpha1/namespaces/tenant-a/kustomizations/app"
)

// server is an API server that stores nothing. A dry run merges the manifest into the object.
type server struct {
	mu       sync.Mutex        // guards what follows
	objects  map[string]fields // by path
	deny     string            // path of an object whose dry run is refused
	requests []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
	status, answer := s.answer(r)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *server) answer(r *http.Request) (int, any) {
	resources := func(groupVersion string, all ...any) (int, any) {
		return http.StatusOK, fields{"kind": "APIResourceList", "groupVersion": groupVersion, "resources": all}
	}
	resource := func(name, kind string) any {
		return fields{"name": name, "kind": kind, "namespaced": true, "verbs": []string{"get", "patch"}}
	}
	switch r.URL.Path {
	case "/api":
		return http.StatusOK, fields{"kind": "APIVersions", "versions": []string{"v1"}}
	case "/apis":
		version := fields{"groupVersion": "toolkit.lanyard.dev/v1alpha1", "version": "v1alpha1"}
		return http.StatusOK, fields{"kind": "APIGroupList", "groups": []any{
			fields{"name": "toolkit.lanyard.dev", "versions": []any{version}, "preferredVersion": version},
		}}
	case "/api/v1":
		return resources("v1", resource("configmaps", "ConfigMap"), resource("secrets", "Secret"))
	case "/apis/toolkit.lanyard.dev/v1alpha1":
		return resources("toolkit.lanyard.dev/v1alpha1", resource("kustomizations", "Kustomization"))
	}
	o, found := s.objects[r.URL.Path]
	switch {
	case r.Method == http.MethodPatch && r.URL.Path == s.deny:
		return failure(http.StatusForbidden, "Forbidden", fmt.Sprintf(`configmaps %q is forbidden: User "jane" cannot patch resource "configmaps"`, filepath.Base(s.deny)))
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		var manifest fields
		if err := yaml.Unmarshal(body, &manifest); err != nil {
			return failure(http.StatusBadRequest, "BadRequest", err.Error())
		}
		return http.StatusOK, merge(o, manifest)
	case found:
		return http.StatusOK, o
	}
	return http.StatusNotFound, fields{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": filepath.Base(r.URL.Path) + " not found", "code": 404,
		"details": fields{"name": filepath.Base(r.URL.Path)},
	}
}

func failure(status int, reason, message string) (int, any) {
	return status, fields{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": status}
}

// merge returns the fields of both objects. Those of the second one have precedence.
func merge(o, manifest fields) fields {
	merged := maps.Clone(o)
	if merged == nil {
		merged = fields{}
	}
	for name, value := range manifest {
		inner, isMap := value.(fields)
		if old, ok := merged[name].(fields); ok && isMap {
			value = merge(old, inner)
		}
		merged[name] = value
	}
	return merged
}

// add stores an object as the Kustomization app has applied it.
func (s *server) add(kind, name string, data fields, annotations fields) {
	const prefix = "kustomize.toolkit.lanyard.dev/"
	metadata := fields{
		"name": name, "namespace": "tenant-a", "uid": "uid-" + name, "resourceVersion": "1",
		"labels": fields{prefix + "name": "app", prefix + "namespace": "tenant-a"},
	}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	s.objects[core+strings.ToLower(kind)+"s/"+name] = fields{"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data}
}

// kustomize sets the Kustomization, with an inventory of ConfigMaps.
func (s *server) kustomize(spec fields, inventory ...string) {
	var entries []any
	for _, name := range inventory {
		entries = append(entries, fields{"id": "tenant-a_" + name + "__ConfigMap", "v": "v1"})
	}
	s.objects[kustomization] = fields{
		"apiVersion": "toolkit.lanyard.dev/v1alpha1", "kind": "Kustomization", "metadata": fields{"name": "app", "namespace": "tenant-a"},
		"spec": merge(fields{
			"sourceRef": fields{"kind": "OCIRepository", "name": "app"}, "prune": true, "interval": "10m", "targetNamespace": "tenant-a", "path": "./app",
		}, spec),
		"status": fields{"inventory": fields{"entries": entries}},
	}
}

// configMap returns a manifest.
func configMap(name, data string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: %s\n", name, data)
}

// newCluster returns a cluster with the Kustomization app, and a folder with other manifests.
func newCluster(t *testing.T) (s *server, folder string) {
	t.Helper()
	s = &server{objects: map[string]fields{}}
	s.kustomize(fields{
		"commonMetadata": fields{"labels": fields{"team": "a"}}, "ignore": []any{fields{"paths": []any{"/data/ignored"}}},
		"postBuild": fields{"substitute": fields{"word": "second"}, "substituteFrom": []any{fields{"kind": "ConfigMap", "name": "words"}}},
	}, "same", "text", "kept", "gone", "missing")
	s.add("ConfigMap", "words", fields{"other": "third"}, nil)
	s.add("ConfigMap", "same", fields{"key": "first", "ignored": "by another"}, nil)
	s.objects[core+"configmaps/same"]["metadata"].(fields)["labels"].(fields)["team"] = "a"
	s.add("ConfigMap", "text", fields{"key": "first", "file": "one\ntwo\nthree\n"}, nil)
	s.add("ConfigMap", "once", fields{"key": "first"}, nil)
	s.add("ConfigMap", "kept", fields{}, fields{"kustomize.toolkit.lanyard.dev/prune": "disabled"})
	s.add("ConfigMap", "gone", fields{}, nil)
	s.add("Secret", "keys", fields{"password": base64.StdEncoding.EncodeToString([]byte("s3cr3t-before"))}, nil)
	return s, files(t, map[string]string{
		"app/same.yaml": configMap("same", "{key: first, ignored: by us}"),
		"app/text.yaml": configMap("text", `{key: "${word} ${other}", file: "one\nnew\nthree\n"}`),
		"app/new.yaml":  configMap("new", "{key: first}"),
		"app/once.yaml": strings.Replace(configMap("once", "{key: second}"), "{name: once}", "{name: once, annotations: {kustomize.toolkit.fluxcd.io/ssa: IfNotPresent}}", 1),
		"app/keys.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {token: s3cr3t-new}\ndata: {password: " +
			base64.StdEncoding.EncodeToString([]byte("s3cr3t-after")) + "}\n",
		"other/unused.yaml": configMap("unused", "{}"),
		// A push leaves out what this file lists.
		".sourceignore": "broken.yaml\n", "app/broken.yaml": "{",
	})
}

// files writes files into a new folder.
func files(t *testing.T, all map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, content := range all {
		path := filepath.Join(folder, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return folder
}

// command runs lanyard diff with a program as its child.
type command struct{ program, kubeconfig string }

// Programs that can be the child. Any of them builds the same, and the first one is smaller.
const (
	small   = "../../kustomize/testdata/child"
	lanyard = "../../../cmd/lanyard"
)

// start starts the server, and returns the path of a kubeconfig file for the server.
func (s *server) start(t *testing.T) (kubeconfig string) {
	t.Helper()
	at := httptest.NewServer(s)
	t.Cleanup(at.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "c", "user": {}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "tenant-a"}}]}`, at.URL), 0o600))
	return kubeconfig
}

// newCommand returns a command that reaches a server, with a program as its child.
func newCommand(t *testing.T, s *server, program string) command {
	t.Helper()
	c := command{program: filepath.Join(t.TempDir(), "child"), kubeconfig: s.start(t)}
	// The test's own binary cannot be the child: the race detector needs more memory than a child may
	// have.
	build := exec.CommandContext(t.Context(), "go", "build", "-o", c.program, program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the child: %v\n%s", err, output)
	}
	return c
}

// run runs lanyard diff kustomization.
func (c command) run(t *testing.T, args ...string) (status int, out, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	std := frame.IO{Kinds: kinds.All(), Out: &stdout, Err: &stderr, Env: func(string) string { return "" }}
	root := &cobra.Command{Use: frame.Name}
	root.AddCommand(NewDiff(std, c.program))
	status = frame.Run(t.Context(), root, append([]string{"kustomization", "--kubeconfig", c.kubeconfig}, args...), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// isHarmless reports whether a request stores nothing.
func isHarmless(request string) bool {
	dry := strings.HasPrefix(request, "PATCH ") && strings.Contains(request, "dryRun=All") && strings.Contains(request, "fieldManager=lanyard-apply-controller")
	return strings.HasPrefix(request, "GET ") || dry
}

// TestDiff compares the output of all formats with a golden file. No request stores anything. The
// program lanyard is its own child.
func TestDiff(t *testing.T) {
	s, folder := newCluster(t)
	c := newCommand(t, s, lanyard)
	var all bytes.Buffer
	for _, format := range []string{frame.Text, frame.JSON, frame.YAML} {
		status, out, said := c.run(t, "app", "--path", folder, "-o", format)
		if status != frame.Failed {
			t.Errorf("status %d", status)
		}
		fmt.Fprintf(&all, "$ lanyard diff kustomization app --path=deploy -o %s\n%s%s\n", format, out, said)
	}
	golden.Compare(t, "testdata/diff.golden", all.Bytes())
	if strings.Contains(all.String(), "s3cr3t") || strings.Contains(all.String(), "czNjcjN0") {
		t.Error("the output has a value of a Secret")
	}
	dry := 0
	for _, r := range s.requests {
		if !isHarmless(r) {
			t.Errorf("sent %s", r)
		}
		if strings.HasPrefix(r, "PATCH") {
			dry++
		}
	}
	if dry != 3*5 {
		t.Errorf("sent %d dry runs, want one for each manifest: %q", dry, s.requests)
	}
}

// TestNothingChanges asserts that the status is 0 if the cluster has the manifests. Without
// spec.prune, objects without a manifest stay.
func TestNothingChanges(t *testing.T) {
	s, _ := newCluster(t)
	s.kustomize(fields{"prune": false, "path": ""}, "same", "gone")
	c := newCommand(t, s, small)
	status, out, said := c.run(t, "app", "--path", files(t, map[string]string{"same.yaml": configMap("same", "{key: first}")}))
	if want := "left alone ConfigMap/tenant-a/gone\nunchanged objects: 1\n"; status != 0 || out != want || said != "" {
		t.Errorf("status %d: %s%s", status, out, said)
	}
}

// TestOtherCluster compares the objects of another cluster. The Kustomization and its variables are in
// this cluster.
func TestOtherCluster(t *testing.T) {
	here, there := &server{objects: map[string]fields{}}, &server{objects: map[string]fields{}}
	here.kustomize(fields{
		"path": "", "kubeConfig": fields{"secretRef": fields{"name": "remote"}},
		"postBuild": fields{"substituteFrom": []any{fields{"kind": "ConfigMap", "name": "words"}}},
	}, "a", "gone")
	here.add("ConfigMap", "words", fields{"word": "here"}, nil)
	here.add("ConfigMap", "a", fields{"key": "another object"}, nil)
	there.add("ConfigMap", "a", fields{"key": "there"}, nil)
	there.add("ConfigMap", "gone", fields{}, nil)
	c := newCommand(t, here, small)
	folder, remote := files(t, map[string]string{"a.yaml": configMap("a", `{key: "${word}"}`)}), there.start(t)
	status, out, said := c.run(t, "app", "--path", folder, "--remote-kubeconfig", remote)
	if want := "changed ConfigMap/tenant-a/a\n  /data/key\n  - \"there\"\n  + \"here\"\ndeleted ConfigMap/tenant-a/gone\nunchanged objects: 0\n"; status != frame.Failed || out != want {
		t.Errorf("status %d: %s%s", status, out, said)
	}
	for _, r := range there.requests {
		if !isHarmless(r) {
			t.Errorf("sent %s to the other cluster", r)
		}
	}
	for _, r := range here.requests {
		if strings.Contains(r, "secrets") || strings.HasPrefix(r, "PATCH") {
			t.Errorf("sent %s to this cluster", r)
		}
	}
	if status, _, said := c.run(t, "app", "--path", folder); status != frame.Undecided || !strings.Contains(said, "say with --remote-kubeconfig") {
		t.Errorf("without the flag, status %d: %s", status, said)
	}
	here.kustomize(fields{"path": ""})
	if status, _, said := c.run(t, "app", "--path", folder, "--remote-kubeconfig", remote); status != frame.Undecided || !strings.Contains(said, "leave the flag out") {
		t.Errorf("for this cluster, status %d: %s", status, said)
	}
}

// TestSecretVariables asserts that no value of any object is shown if variables come from a Secret,
// even if the Secret does not exist any more.
func TestSecretVariables(t *testing.T) {
	for name, wantCreated := range map[string]bool{"words": true, "deleted": false} {
		s := &server{objects: map[string]fields{}}
		s.kustomize(fields{"path": "", "postBuild": fields{
			"substitute": fields{"word": "x"}, "substituteFrom": []any{fields{"kind": "Secret", "name": name, "optional": true}},
		}})
		s.add("Secret", "words", fields{"word": base64.StdEncoding.EncodeToString([]byte("s3cr3t"))}, nil)
		s.add("ConfigMap", "a", fields{"key": "old s3cr3t", "short": "s"}, nil)
		manifests := map[string]string{"a.yaml": configMap("a", `{key: "new ${word}", short: "t"}`)}
		if wantCreated {
			manifests["b.yaml"] = configMap("b", `{key: "${word}"}`)
		}
		c := newCommand(t, s, small)
		status, out, said := c.run(t, "app", "--path", files(t, manifests))
		want := "changed ConfigMap/tenant-a/a\n  /data/key\n  - \"***\"\n  + \"*** (changed)\"\n  /data/short\n  - \"***\"\n  + \"*** (changed)\"\n"
		if wantCreated {
			want += "created ConfigMap/tenant-a/b\n"
		}
		if status != frame.Failed || out != want+"unchanged objects: 0\n" || strings.Contains(out+said, "s3cr3t") {
			t.Errorf("%s: status %d: %s%s", name, status, out, said)
		}
	}
}

// TestRefusals checks the status and the text of errors.
func TestRefusals(t *testing.T) {
	s, folder := newCluster(t)
	c := newCommand(t, s, small)
	for name, row := range map[string]struct {
		change func(s *server, c *command)
		args   []string
		status int
		says   []string
	}{
		"no name":   {args: []string{"--path", folder}, status: frame.Misused, says: []string{"name one Kustomization"}},
		"no folder": {args: []string{"app"}, status: frame.Misused, says: []string{"--path", "inside the cluster", "lanyard pull artifact"}},
		"a file":    {args: []string{"app", "--path", filepath.Join(folder, "app", "new.yaml")}, status: frame.Undecided, says: []string{"--path", "is no folder"}},
		"missing":   {args: []string{"other", "--path", folder}, status: frame.Undecided, says: []string{"there is no kustomization/other in namespace tenant-a"}},
		"no variables": {
			change: func(s *server, _ *command) { delete(s.objects, core+"configmaps/words") }, args: []string{"app", "--path", folder},
			status: frame.Undecided, says: []string{"spec.postBuild.substituteFrom[0]", "ConfigMap words", "create it, or set optional"},
		},
		"no right": {
			change: func(s *server, _ *command) { s.deny = core + "configmaps/new" }, args: []string{"app", "--path", folder},
			status: frame.Undecided, says: []string{"apply ConfigMap/tenant-a/new as you", `"jane" cannot patch`, "give you the missing right"},
		},
		"a wrong field": {
			change: func(s *server, _ *command) { s.kustomize(fields{"ignore": []any{fields{"paths": []any{"spec"}}}}) }, args: []string{"app", "--path", folder},
			status: frame.Undecided, says: []string{"spec.ignore[0].paths", "write JSON pointers"},
		},
		"no build": {
			change: func(s *server, _ *command) { s.kustomize(fields{"path": "./missing"}) }, args: []string{"app", "--path", folder},
			status: frame.Undecided, says: []string{"missing"},
		},
		"no child": {
			change: func(_ *server, c *command) { c.program = "/bin/false" }, args: []string{"app", "--path", folder},
			status: frame.Undecided, says: []string{"cannot be built on this machine", "run the command on Linux"},
		},
		"no file of the program": {
			change: func(_ *server, c *command) { c.program = "" }, args: []string{"app", "--path", folder},
			status: frame.Undecided, says: []string{"call the program by its path"},
		},
	} {
		// The command may have ended before the server has answered its last request.
		s.mu.Lock()
		changed, objects := c, maps.Clone(s.objects)
		if row.change != nil {
			row.change(s, &changed)
		}
		s.mu.Unlock()
		status, out, said := changed.run(t, row.args...)
		if status != row.status || out != "" || slices.ContainsFunc(row.says, func(text string) bool { return !strings.Contains(said, text) }) {
			t.Errorf("%s: status %d: %s%s", name, status, out, said)
		}
		s.mu.Lock()
		s.objects, s.deny = objects, ""
		s.mu.Unlock()
	}
}

// TestHarmless asserts that a request that could store something is not sent.
func TestHarmless(t *testing.T) {
	sent := 0
	next := roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{Body: http.NoBody}, nil
	})
	for request, want := range map[string]int{
		"GET /a": 1, "GET /a?watch=true": 1, "PATCH /a?dryRun=All": 1, "PATCH /a?dryRun=All&force=true": 1,
		"PATCH /a": 0, "PATCH /a?dryRun=": 0, "PATCH /a?dryRun=none": 0, "PATCH /a?dryRun=All&dryRun=none": 0,
		"POST /a?dryRun=All": 0, "PUT /a?dryRun=All": 0, "DELETE /a?dryRun=All": 0, "DELETE /a": 0,
	} {
		method, path, _ := strings.Cut(request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "https://cluster.example.com"+path, strings.NewReader("x"))
		must.Succeed(t, err)
		sent = 0
		response, err := dryRuns{next}.RoundTrip(r)
		if sent != want || (err == nil) != (want == 1) {
			t.Errorf("%s: sent %d, %v", request, sent, err)
		}
		if response != nil {
			response.Body.Close()
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
