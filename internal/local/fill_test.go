package local

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// repository is YAML with a Namespace and an OCIRepository. The OCIRepository begins at line 5.
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

// TestFill asserts that Fill stores content in the repositories and buckets that the manifests
// name. Fill must bypass the cloud's permission checks.
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
	must.Succeed(t, err)
	filled, err := c.Fill(t.Context(), m, fstest.MapFS{"deeper/file": {Data: []byte("content")}}, "1.0.0")
	must.Succeed(t, err)
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
	must.Succeed(t, err)
	behind, err := oci.Connect(t.Context(), image, oci.Options{Transport: inProcess{c.planes.registries.handler(azurePlane("lanyarddemo.azurecr.io"))}})
	must.Succeed(t, err)
	if _, err := behind.Resolve(t.Context(), oci.Reference{Tag: "7"}); err != nil {
		t.Error(err)
	}
	if calls := c.Journal().Calls(journal.Filter{}); len(calls) > 0 {
		t.Errorf("the cloud was asked: %+v", calls)
	}
}
