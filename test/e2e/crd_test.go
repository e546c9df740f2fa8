package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestAdmission has the real API server judge every row of the tables that the schemas' own tests use.
func TestAdmission(t *testing.T) {
	tn := newTenant(t, "admission")
	for kind, c := range map[string]struct {
		minimal map[string]any
		formats string
	}{
		v1alpha1.OCIRepositoryKind:   {map[string]any{"url": tn.url, "interval": "5m"}, "formats.yaml"},
		v1alpha1.ImageRepositoryKind: {map[string]any{"image": strings.TrimPrefix(tn.url, "oci://"), "interval": "5m"}, "images.yaml"},
		v1alpha1.BucketKind:          {map[string]any{"bucketName": "tenant-a", "endpoint": "s3." + local.Region + ".amazonaws.com", "interval": "5m"}, "buckets.yaml"},
	} {
		for _, path := range []string{"../../auth/spec/testdata/exclusions.yaml", "../../config/crd/testdata/" + c.formats} {
			admit(t, tn, kind, c.minimal, path)
		}
	}
}

// admit has the rows of one table judged that are about the kind.
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

// TestExplain asks kubectl about every field, as people do.
func TestExplain(t *testing.T) {
	fields := apiFields(t)
	for _, want := range []string{"spec.url", "spec.ref.semver", "spec.layerSelector.operation", "status.identity.cloudIdentity", "status.artifact.metadata", "status.conditions.type"} {
		if !slices.Contains(fields, want) {
			t.Errorf("the API server's OpenAPI document has no field %s", want)
		}
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, field := range fields {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var out bytes.Buffer
			cmd := world.Kubectl(t.Context(), "explain", "ocirepositories.toolkit.lanyard.dev."+field)
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			_, description, ok := strings.Cut(out.String(), "DESCRIPTION:\n")
			description, _, _ = strings.Cut(description, "\nFIELDS:")
			if text := strings.TrimSpace(description); err != nil || !ok || len(text) < 20 || strings.Contains(text, "<empty>") {
				t.Errorf("kubectl explain of %s: %v\n%s", field, err, out.String())
			}
		})
	}
	running.Wait()
}

// apiFields are the paths of all fields of an OCIRepository, from the OpenAPI document that kubectl reads too.
func apiFields(t *testing.T) []string {
	t.Helper()
	raw, err := apiserver.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/toolkit.lanyard.dev/v1alpha1").DoRaw(t.Context())
	must(t, "read the OpenAPI document", err)
	var document struct {
		Components struct {
			Schemas map[string]map[string]any
		}
	}
	must(t, "read the OpenAPI document", json.Unmarshal(raw, &document))
	var fields []string
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		if items, ok := schema["items"].(map[string]any); ok {
			schema = items
		}
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			below := strings.TrimPrefix(path+"."+name, ".")
			if name == "metadata" && path == "" {
				continue // Kubernetes' own
			}
			fields = append(fields, below)
			walk(below, properties[name].(map[string]any))
		}
	}
	for name, schema := range document.Components.Schemas {
		if strings.HasSuffix(name, "."+v1alpha1.OCIRepositoryKind) {
			walk("", schema)
		}
	}
	if len(fields) < 30 {
		t.Fatal(fmt.Errorf("the OpenAPI document has %d fields: %v", len(fields), fields))
	}
	return fields
}
