package flux

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// schema has the parts of a CRD's schema that say which fields an object may have.
type schema struct {
	Type       string             `json:"type"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Rules      []struct {
		Rule string `json:"rule"`
	} `json:"x-kubernetes-validations"`
}

// specOf returns the schema of spec for one version, from a CRD's file.
func specOf(t *testing.T, file, version string) *schema {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					Whole schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	must.Succeed(t, yaml.Unmarshal(text, &crd))
	for _, v := range crd.Spec.Versions {
		if spec := v.Schema.Whole.Properties["spec"]; v.Name == version && spec != nil {
			return spec
		}
	}
	t.Fatalf("%s has no spec in version %s", file, version)
	return nil
}

// refused reports whether the schema has a rule that refuses every value.
func (s *schema) refused() bool {
	return slices.ContainsFunc(s.Rules, func(r struct {
		Rule string `json:"rule"`
	},
	) bool {
		return r.Rule == "false"
	})
}

// compare asserts that Lanyard's schema has each field of Flux's schema. The field must have Flux's
// type, or a rule that refuses every value. The API server would silently drop a field that
// Lanyard's schema lacks. compare returns the number of compared fields.
func compare(t *testing.T, path string, ours, theirs *schema) int {
	t.Helper()
	switch {
	case ours == nil:
		t.Errorf("%s: Flux has the field, and ours drops it silently", path)
		return 1
	case ours.refused():
		return 1
	case ours.Type != theirs.Type:
		t.Errorf("%s: the type is %s, and Flux's is %s", path, ours.Type, theirs.Type)
	}
	compared := 1
	for name, field := range theirs.Properties {
		compared += compare(t, path+"."+name, ours.Properties[name], field)
	}
	if theirs.Items != nil {
		compared += compare(t, path+"[]", ours.Items, theirs.Items)
	}
	return compared
}

// TestFieldsOfFlux asserts that Lanyard's CRDs have every spec field of Flux's CRDs, documented or
// not.
func TestFieldsOfFlux(t *testing.T) {
	for _, kind := range []struct{ module, group, plural string }{
		{sourceController, "source", "ocirepositories"},
		{sourceController, "source", "buckets"},
		{imageReflector, "image", "imagerepositories"},
	} {
		ours := specOf(t, filepath.Join("../../config/crd", "toolkit.lanyard.dev_"+kind.plural+".yaml"), v1alpha1.GroupVersion().Version)
		file := kind.group + ".toolkit.fluxcd.io_" + kind.plural + ".yaml"
		theirs := specOf(t, filepath.Join(module(t, kind.module), "config/crd/bases", file), "v1")
		if n := compare(t, kind.plural+": spec", ours, theirs); n < 10 {
			t.Errorf("%s: only %d fields were compared: the test looks in the wrong place", kind.plural, n)
		}
	}
}
