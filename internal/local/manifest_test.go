//go:build !race

// These tests start no goroutine, so the race detector would only slow them down.

package local

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

func TestReadManifests(t *testing.T) {
	files := fstest.MapFS{
		"a.yaml":          {Data: []byte("# only a comment\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: ns}\n")},
		"b.yml":           {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, namespace: ns}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n")},
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
	if want := []string{"Namespace", "ServiceAccount", "ConfigMap"}; !slices.Equal(got, want) {
		t.Errorf("are %q, want %q", got, want)
	}
	if _, err := ReadManifests(t.Context(), "", examples.Files()); err != nil {
		t.Error(err)
	}
}

// repository is an OCIRepository, whose lines begin at 5, after its namespace.
const repository = `apiVersion: v1
kind: Namespace
metadata: {name: ns}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: OCIRepository
metadata:
  name: app
  namespace: ns
spec:
  url: oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/team/app
  interval: 10s
  provider: aws
  serviceAccountName: sa
`

// TestReadManifestsRefuses asserts that each error names the file and the line, and that all errors
// are told at once.
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

// TestFill asserts that content lies where manifests look for it, behind the cloud's checks.
func TestFill(t *testing.T) {
	c := startDemonstration(t)
	manifests := repository + `---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: OCIRepository
metadata: {name: tagged, namespace: ns}
spec: {url: oci://lanyarddemo.azurecr.io/team/app, interval: 10s, provider: azure, ref: {tag: "7"}}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: ImageRepository
metadata: {name: image, namespace: ns}
spec: {image: europe-west1-docker.pkg.dev/my-org-project/team/app, interval: 10s, provider: gcp}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: OCIRepository
metadata: {name: elsewhere, namespace: ns}
spec: {url: oci://registry.example.com/team/app, interval: 10s}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: Bucket
metadata: {name: bucket, namespace: ns}
spec: {bucketName: tenant-a-direct, interval: 10s, provider: gcp}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: Bucket
metadata: {name: unknown, namespace: ns}
spec: {bucketName: somebody-elses, interval: 10s, provider: gcp}
`
	m, err := ReadManifests(t.Context(), "my", fstest.MapFS{"x.yaml": {Data: []byte(manifests)}})
	if err != nil {
		t.Fatal(err)
	}
	filled, err := c.Fill(t.Context(), m, fstest.MapFS{"deeper/file": {Data: []byte("content")}}, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com/team/app:1.0.0", "europe-west1-docker.pkg.dev/my-org-project/team/app:1.0.0",
		"lanyarddemo.azurecr.io/team/app:7", "tenant-a-direct",
	}
	if !slices.Equal(filled, want) {
		t.Errorf("filled %q, want %q", filled, want)
	}
	object, err := c.planes.storage.GetObject("tenant-a-direct", "deeper/file")
	if err != nil || string(object.Content) != "content" {
		t.Errorf("the bucket has %q: %v", object.Content, err)
	}
	image, err := oci.ParseURL("oci://lanyarddemo.azurecr.io/team/app")
	if err != nil {
		t.Fatal(err)
	}
	behind, err := oci.Connect(t.Context(), image, oci.Options{Transport: inProcess{c.planes.registries.handler(azurePlane("lanyarddemo.azurecr.io"))}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := behind.Resolve(t.Context(), oci.Reference{Tag: "7"}); err != nil {
		t.Error(err)
	}
	if calls := c.Journal().Calls(journal.Filter{}); len(calls) > 0 {
		t.Errorf("the cloud was asked: %+v", calls)
	}
}
