//go:build !concurrent

// These tests start no goroutine. The race detector would only slow them down, so dev/unit-tests
// runs them without it.

package local

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/lanyard-dev/lanyard/examples"
)

func TestReadManifests(t *testing.T) {
	files := fstest.MapFS{
		"a.yaml":          {Data: []byte("# only a comment\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: ns}\n")},
		"b.yml":           {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, namespace: ns}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n")},
		"c.yaml":          {Data: []byte("apiVersion: infrastructure.lanyard.dev/v1alpha1\nkind: AWSCluster\nmetadata: {name: cl, namespace: ns}\nspec: {region: eu-west-1}\n")},
		"deeper/c.yaml":   {Data: []byte("not: read")},
		"not-a-manifest":  {Data: []byte("\t")},
		"cloud/cloud.yml": {Data: []byte("\t")},
	}
	manifests, err := ReadManifests(t.Context(), "", files)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifests.all {
		got = append(got, m.GetKind())
	}
	if want := []string{"Namespace", "ServiceAccount", "ConfigMap", "AWSCluster"}; !slices.Equal(got, want) {
		t.Errorf("are %q, want %q", got, want)
	}
	if _, err := ReadManifests(t.Context(), "", examples.Files()); err != nil {
		t.Error(err)
	}
}

// TestReadManifestsRefuses asserts that each error has file and line, and that all errors are
// returned at once.
func TestReadManifestsRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		replace, by string
		want        []string
	}{
		"no YAML":             {"  url: oci", "  url: a: b", []string{"my/x.yaml:11: "}},
		"field twice":         {"  interval: 10s", "  provider: aws", []string{"my/x.yaml:13: "}},
		"no kind":             {"kind: OCIRepository\n", "", []string{"my/x.yaml:5: ", "apiVersion, kind and metadata.name"}},
		"no name":             {"  name: app\n", "", []string{"my/x.yaml:7: "}},
		"unknown field":       {"  url: oci", "  urll: oci", []string{`my/x.yaml:11: unknown field "spec.urll"`}},
		"unknown core field":  {"metadata: {name: ns}", "metadata: {name: ns, lables: {}}", []string{`my/x.yaml:3: unknown field "metadata.lables"`}},
		"wrong type":          {"provider: aws", "provider: {}", []string{"my/x.yaml:13: spec.provider: must not be a JSON object"}},
		"refused by schema":   {"provider: aws", "provider: alibaba", []string{"my/x.yaml:13: OCIRepository ns/app: ", "alibaba"}},
		"field of Flux":       {"  provider: aws", "  verify: {provider: cosign}", []string{"my/x.yaml:13: OCIRepository ns/app: ", "verify is not supported"}},
		"unknown kind":        {"OCIRepository", "OCIRepositry", []string{"my/x.yaml:5: ", "OCIRepository, Bucket, ImageRepository"}},
		"another's group":     {"toolkit.lanyard.dev/v1alpha1", "source.toolkit.fluxcd.io/v1", []string{"my/x.yaml:5: ", "toolkit.lanyard.dev/v1alpha1"}},
		"another version":     {"toolkit.lanyard.dev/v1alpha1", "infrastructure.lanyard.dev/v1", []string{"my/x.yaml:5: ", "does not serve"}},
		"no namespace":        {"  namespace: ns\n", "", []string{"my/x.yaml:7: ", "metadata.namespace is missing"}},
		"missing namespace":   {"namespace: ns", "namespace: other", []string{"my/x.yaml:9: ", `namespace "other" will not exist`}},
		"unknown expectation": {"  namespace: ns\n", "  namespace: ns\n  annotations:\n    demo.lanyard.dev/expect: refuse\n", []string{"my/x.yaml:11: ", "is not an expectation"}},
		"two errors": {
			"  interval: 10s\n  provider: aws", "  intervall: 10s\n  provide: aws",
			[]string{`my/x.yaml:12: unknown field "spec.intervall"`, `my/x.yaml:13: unknown field "spec.provide"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(repository, tc.replace, tc.by, 1)
			_, err := ReadManifests(t.Context(), "my", fstest.MapFS{"x.yaml": {Data: []byte(text)}})
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s", err, want)
				}
			}
		})
	}
	if _, err := ReadManifests(t.Context(), "my", fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "--examples") {
		t.Errorf("without manifests: %v", err)
	}
	if _, err := ReadManifests(t.Context(), "my", os.DirFS("nowhere")); err == nil || !strings.Contains(err.Error(), "folder my") || !strings.Contains(err.Error(), "--examples") {
		t.Errorf("without a folder: %v", err)
	}
}
