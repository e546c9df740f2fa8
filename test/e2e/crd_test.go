package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestAdmission sends every row of the schema tests' tables to the real API server. The API server
// must accept or refuse each row as the table says.
func TestAdmission(t *testing.T) {
	beside(t)
	tn := newTenant(t, "admission")
	cases := map[string]struct {
		minimal map[string]any
		formats string
	}{
		v1alpha1.OCIRepositoryKind:   {map[string]any{"url": tn.url, "interval": "5m"}, "formats.yaml"},
		v1alpha1.ImageRepositoryKind: {map[string]any{"image": strings.TrimPrefix(tn.url, "oci://"), "interval": "5m"}, "images.yaml"},
		v1alpha1.BucketKind:          {map[string]any{"bucketName": "tenant-a", "endpoint": "s3." + local.Region + ".amazonaws.com", "interval": "5m"}, "buckets.yaml"},
	}
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		c := cases[kind.Kind]
		for _, path := range []string{"../../auth/spec/testdata/exclusions.yaml", "../../config/crd/testdata/" + c.formats} {
			admit(t, tn, kind.Kind, c.minimal, path)
		}
	}
}

// admit reads the table at path, and sends its rows for this kind to the API server.
func admit(t *testing.T, tn *tenant, kind string, minimal map[string]any, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, "read a table", err)
	var table struct {
		Rows []struct {
			Name           string
			Kinds          []string
			Spec           map[string]any
			Accepted       bool
			Field, Message string
		}
	}
	must(t, "read a table", yaml.Unmarshal(data, &table))
	refused := 0
	for _, row := range table.Rows {
		if row.Kinds != nil && !slices.Contains(row.Kinds, kind) {
			continue
		}
		t.Run(kind+"/"+filepath.Base(path)+"/"+row.Name, func(t *testing.T) {
			spec := maps.Clone(minimal)
			maps.Copy(spec, row.Spec)
			o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			o.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(kind))
			o.SetNamespace(tn.namespace)
			o.SetName("row")
			err := objects.Create(t.Context(), o, client.DryRunAll)
			switch {
			case row.Accepted:
				must(t, "an accepted row", err)
			case !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.Field) || !strings.Contains(err.Error(), row.Message):
				t.Errorf("the API server says %v; want %s: %s", err, row.Field, row.Message)
			}
		})
		if !row.Accepted {
			refused++
		}
	}
	if refused == 0 {
		t.Errorf("%s has no row that is refused", path)
	}
}

// TestExplain asks kubectl about a field of each kind, as people do. Tests of config/crd check that
// all fields have a description.
func TestExplain(t *testing.T) {
	beside(t)
	for field, word := range map[string]string{
		"ocirepositories.toolkit.lanyard.dev.spec.layerSelector.operation":       "extract",
		"buckets.toolkit.lanyard.dev.spec.sts.endpoint":                          "https://",
		"imagerepositories.toolkit.lanyard.dev.status.lastScanResult.latestTags": "tags",
	} {
		out, err := world.Kubectl(t.Context(), "explain", field).CombinedOutput()
		if _, description, ok := strings.Cut(string(out), "DESCRIPTION:\n"); err != nil || !ok || !strings.Contains(description, word) {
			t.Errorf("kubectl explain %s: %v\n%s", field, err, out)
		}
	}
}
