package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// explained is an API server with the objects of testdata/explain.yaml.
type explained struct {
	t       *testing.T
	objects map[string]*unstructured.Unstructured // by path of the URL
	words   []string                              // KIND/NAME of the objects to explain
	broken  bool                                  // answers 500 for ServiceAccounts
}

func newExplained(t *testing.T) (*explained, string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "explain.yaml"))
	must.Succeed(t, err)
	f := &explained{t: t, objects: map[string]*unstructured.Unstructured{}}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		o := &unstructured.Unstructured{}
		must.Succeed(t, yaml.Unmarshal([]byte(document), &o.Object))
		resource, _ := apimeta.UnsafeGuessKindToResource(o.GroupVersionKind())
		path := "/apis/" + o.GetAPIVersion()
		if o.GetAPIVersion() == "v1" {
			path = "/api/v1"
		}
		if o.GetNamespace() != "" {
			path += "/namespaces/" + o.GetNamespace()
		}
		f.objects[path+"/"+resource.Resource+"/"+o.GetName()] = o
		if group := o.GroupVersionKind().Group; group == "toolkit.lanyard.dev" || group == "infrastructure.lanyard.dev" {
			f.words = append(f.words, strings.ToLower(o.GetKind())+"/"+o.GetName())
		}
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, writeKubeconfig(t, server.URL)
}

func (f *explained) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || strings.Contains(r.URL.Path, "/secrets") {
		f.t.Errorf("the command asks to %s %s", r.Method, r.URL.Path)
	}
	status, answer := f.answer(r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *explained) answer(path string) (int, any) {
	groups := map[string][]string{
		"toolkit.lanyard.dev":        {"OCIRepository", "Bucket", "ImageRepository", "Kustomization"},
		"infrastructure.lanyard.dev": {"AWSCluster"},
		"identity.lanyard.dev": {
			"WorkloadIdentity", "AWSServiceAccountIdentity", "AWSClusterControllerIdentity", "AWSClusterRoleIdentity", "AWSClusterStaticIdentity",
		},
	}
	resources := func(version string, kinds ...string) any {
		var list []any
		for _, kind := range kinds {
			plural := strings.ToLower(kind) + "s"
			if stem, found := strings.CutSuffix(plural, "ys"); found {
				plural = stem + "ies"
			}
			namespaced := kind != "Namespace" && !strings.HasPrefix(kind, "AWSCluster") || kind == "AWSCluster"
			list = append(list, object{"name": plural, "singularName": strings.ToLower(kind), "namespaced": namespaced, "kind": kind, "verbs": []string{"get"}})
		}
		return object{"kind": "APIResourceList", "groupVersion": version, "resources": list}
	}
	switch {
	case path == "/api":
		return http.StatusOK, object{"kind": "APIVersions", "versions": []string{"v1"}}
	case path == "/api/v1":
		return http.StatusOK, resources("v1", "Namespace", "ServiceAccount")
	case path == "/apis":
		var list []any
		for group := range groups {
			version := object{"groupVersion": group + "/v1alpha1", "version": "v1alpha1"}
			list = append(list, object{"name": group, "versions": []any{version}, "preferredVersion": version})
		}
		return http.StatusOK, object{"kind": "APIGroupList", "groups": list}
	case strings.Count(path, "/") == 3:
		version := strings.TrimPrefix(path, "/apis/")
		return http.StatusOK, resources(version, groups[strings.TrimSuffix(version, "/v1alpha1")]...)
	}
	o := f.objects[path]
	switch {
	case o == nil:
		return failure(http.StatusNotFound, "NotFound")
	case f.broken && o.GetKind() == "ServiceAccount":
		return failure(http.StatusInternalServerError, "InternalError")
	case o.GetAnnotations()["forbidden"] != "":
		return failure(http.StatusForbidden, "Forbidden")
	}
	return http.StatusOK, o.Object
}

// TestExplain compares the output of "lanyard explain" with golden files. The objects cover
// every form of identity, and objects that are refused.
func TestExplain(t *testing.T) {
	f, kubeconfig := newExplained(t)
	var texts, documents bytes.Buffer
	for _, word := range f.words {
		c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		if status := c.run(t.Context(), "explain", word); status != 0 || c.err.Len() > 0 {
			t.Errorf("%s: status %d: %s", word, status, c.err.String())
		}
		fmt.Fprintf(&texts, "$ lanyard explain %s\n%s\n", word, c.out.String())
		document := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		if status := document.run(t.Context(), "explain", word, "-o", "json"); status != 0 || !json.Valid(document.out.Bytes()) {
			t.Errorf("%s: status %d: %s", word, status, document.err.String())
		}
		for line := range strings.Lines(c.out.String() + document.out.String()) {
			if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s prints %q", word, line)
			}
		}
		if slices.Contains([]string{"ocirepository/account", "ocirepository/account-hostile", "ocirepository/lent-to-others"}, word) {
			fmt.Fprintf(&documents, "$ lanyard explain %s -o json\n%s", word, document.out.String())
		}
	}
	golden.Compare(t, "testdata/explain.golden", hideFingerprints(texts.Bytes()))
	c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
	if status := c.run(t.Context(), "explain", "loci/account", "-o", "yaml"); status != 0 {
		t.Error(c.err.String())
	}
	fmt.Fprintf(&documents, "$ lanyard explain loci/account -o yaml\n%s", c.out.String())
	golden.Compare(t, "testdata/explain-json.golden", documents.Bytes())
}

// hideFingerprints replaces the fingerprints in a text, because they differ from process to
// process.
func hideFingerprints(text []byte) []byte {
	const field = "identityFingerprint="
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i, line := range lines {
		if before, _, found := bytes.Cut(line, []byte(field)); found && bytes.HasPrefix(line, []byte("key ")) {
			lines[i] = fmt.Appendf(nil, "%s%s…\n", before, field)
		}
	}
	return bytes.Join(lines, nil)
}

// TestExplainFails checks when the command fails. A refused object is not a failure.
func TestExplainFails(t *testing.T) {
	f, kubeconfig := newExplained(t)
	f.broken = true
	for line, says := range map[string]string{
		"explain ocirepository/nosuch":              "there is no ocirepository/nosuch in namespace tenant-a; -n names another namespace",
		"explain ocirepository/account":             "HTTP 500",
		"explain ocirepository/account -n tenant-b": "there is no ocirepository/account in namespace tenant-b",
	} {
		c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		if status := c.run(t.Context(), strings.Fields(line)...); status != frame.Failed || !strings.Contains(c.err.String(), says) || c.out.Len() > 0 {
			t.Errorf("%s: status %d, says %q, prints %q", line, status, c.err.String(), c.out.String())
		}
	}
}
