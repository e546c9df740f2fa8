// Package crd_test asks of the generated CustomResourceDefinitions what an API
// server would ask: the same code decides here what is stored there.
package crd_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

const ocirepositories = "toolkit.lanyard.dev_ocirepositories.yaml"

// admission judges objects of one kind as the API server does on create.
type admission struct {
	structural *schema.Structural
	schema     schemavalidation.SchemaValidator
	rules      *cel.Validator
}

// read decodes a CRD, fills the API server's defaults in and converts it to the
// form that the API server validates.
func read(tb testing.TB, file string) *apiextensions.CustomResourceDefinition {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &v1); err != nil {
		tb.Fatal(err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.Default(&v1)
	// The API server fills this in when it stores the object.
	v1.Status.StoredVersions = []string{v1.Spec.Versions[0].Name}
	var crd apiextensions.CustomResourceDefinition
	if err := scheme.Convert(&v1, &crd, nil); err != nil {
		tb.Fatal(err)
	}
	return &crd
}

func newAdmission(tb testing.TB) *admission {
	tb.Helper()
	crd := read(tb, ocirepositories)
	validation, err := apiextensions.GetSchemaForVersion(crd, crd.Spec.Versions[0].Name)
	if err != nil {
		tb.Fatal(err)
	}
	structural, err := schema.NewStructural(validation.OpenAPIV3Schema)
	if err != nil {
		tb.Fatal(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(validation.OpenAPIV3Schema)
	if err != nil {
		tb.Fatal(err)
	}
	return &admission{
		structural: structural,
		schema:     validator,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}
}

// admit applies pruning and defaults to the object, in place, and returns why
// it would be refused. Rules are asked only of an object whose types and lengths
// fit, as the API server does.
func (a *admission) admit(ctx context.Context, object map[string]any) field.ErrorList {
	defaulting.PruneNonNullableNullsWithoutDefaults(object, a.structural)
	defaulting.Default(object, a.structural)
	pruning.Prune(object, a.structural, true)
	errs := schemavalidation.ValidateCustomResource(nil, object, a.schema)
	blocking := []field.ErrorType{
		field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
	}
	if slices.ContainsFunc(errs, func(err *field.Error) bool { return slices.Contains(blocking, err.Type) }) {
		return errs
	}
	violations, _ := a.rules.Validate(ctx, nil, a.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, violations...)
}

// ocirepository is a valid object with the fields of spec besides.
func ocirepository(spec map[string]any) map[string]any {
	full := map[string]any{
		"url":      "oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app",
		"interval": "5m",
	}
	maps.Copy(full, spec)
	return map[string]any{
		"apiVersion": "toolkit.lanyard.dev/v1alpha1",
		"kind":       "OCIRepository",
		"metadata":   map[string]any{"name": "tenant-a-repo", "namespace": "tenant-a"},
		"spec":       full,
	}
}

// TestDefinitionsAreAccepted holds that an API server takes the CRDs: their
// schemas are structural and their rules compile and stay within the cost limit.
func TestDefinitionsAreAccepted(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs here: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), read(t, file)) {
				t.Error(err)
			}
		})
	}
}

// TestKindsAreRegistered holds that the Go types of module api are those that
// the definition names.
func TestKindsAreRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	spec := read(t, ocirepositories).Spec
	if spec.Group != v1alpha1.Group || spec.Versions[0].Name != v1alpha1.Version || spec.Names.Kind != v1alpha1.OCIRepositoryKind {
		t.Errorf("the CRD is of %s/%s, %s", spec.Group, spec.Versions[0].Name, spec.Names.Kind)
	}
	for _, kind := range []string{spec.Names.Kind, spec.Names.ListKind} {
		if !scheme.Recognizes(v1alpha1.GroupVersion().WithKind(kind)) {
			t.Errorf("the scheme does not know %s", kind)
		}
	}
}

// row is one line of a truth table.
type row struct {
	Name     string         `json:"name"`
	Spec     map[string]any `json:"spec"`
	Accepted bool           `json:"accepted"`
	Field    string         `json:"field"`
	Message  string         `json:"message"`
}

func rows(t *testing.T, file string) []row {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Rows []row `json:"rows"`
	}
	if err := yaml.UnmarshalStrict(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) == 0 {
		t.Fatalf("%s has no rows", file)
	}
	return table.Rows
}

// TestOCIRepositoryTables compares the schema's verdicts with the table of
// exclusions, which auth/spec obeys too, and with that of the fields' formats.
func TestOCIRepositoryTables(t *testing.T) {
	a := newAdmission(t)
	for _, file := range []string{"../../auth/spec/testdata/exclusions.yaml", "testdata/formats.yaml"} {
		seen := map[string]bool{}
		for _, row := range rows(t, file) {
			t.Run(filepath.Base(file)+"/"+row.Name, func(t *testing.T) {
				if seen[row.Name] {
					t.Fatal("the table has two rows of this name")
				}
				seen[row.Name] = true
				errs := a.admit(t.Context(), ocirepository(row.Spec))
				if row.Accepted {
					if len(errs) > 0 {
						t.Fatalf("refused: %v", errs.ToAggregate())
					}
					return
				}
				if len(errs) == 0 {
					t.Fatal("accepted")
				}
				if row.Field == "" || row.Message == "" {
					t.Fatal("the row must say which field is refused, and how")
				}
				for _, err := range errs {
					if err.Field == row.Field && strings.Contains(err.Error(), row.Message) {
						return
					}
				}
				t.Fatalf("refused otherwise than %s: %s\n%v", row.Field, row.Message, errs.ToAggregate())
			})
		}
	}
}

// TestExamplesAreAccepted holds that the schema takes the objects of the
// demonstration, also those whose credential is refused later.
func TestExamplesAreAccepted(t *testing.T) {
	a := newAdmission(t)
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if object["kind"] != v1alpha1.OCIRepositoryKind {
				continue
			}
			seen++
			if errs := a.admit(t.Context(), object); len(errs) > 0 {
				t.Errorf("%s: %v", file, errs.ToAggregate())
			}
		}
	}
	if seen == 0 {
		t.Error("no objects in examples")
	}
}

// TestOCIRepositoryDefaults shows what a minimal object becomes when it is stored.
func TestOCIRepositoryDefaults(t *testing.T) {
	object := ocirepository(map[string]any{"layerSelector": map[string]any{}, "ref": nil})
	if errs := newAdmission(t).admit(t.Context(), object); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	repo := decode(t, object)
	if got := repo.Spec.Provider; got != v1alpha1.ProviderGeneric {
		t.Errorf("provider is %q", got)
	}
	if got := repo.Spec.Timeout; got == nil || got.Duration != time.Minute {
		t.Errorf("timeout is %v", got)
	}
	if got := repo.Spec.LayerSelector; got == nil || got.Operation != v1alpha1.LayerExtract {
		t.Errorf("layerSelector is %+v", got)
	}
	if repo.Spec.Ref != nil {
		t.Errorf("ref is %+v", repo.Spec.Ref)
	}
}

// TestSpecRequired holds that an object without spec is refused, not defaulted.
func TestSpecRequired(t *testing.T) {
	object := ocirepository(nil)
	delete(object, "spec")
	if errs := newAdmission(t).admit(t.Context(), object); len(errs) == 0 {
		t.Fatal("accepted an object without spec")
	}
}

// TestEveryFieldIsDescribed holds that kubectl explain has something to say on
// every field of ours, and that every string a tenant writes has a limit.
func TestEveryFieldIsDescribed(t *testing.T) {
	crd := read(t, ocirepositories)
	validation, err := apiextensions.GetSchemaForVersion(crd, crd.Spec.Versions[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	root := validation.OpenAPIV3Schema
	for _, name := range []string{"spec", "status"} {
		part := root.Properties[name]
		walk(name, &part, func(path string, s *apiextensions.JSONSchemaProps) {
			if len(s.Description) < 20 {
				t.Errorf("%s: description %q says too little", path, s.Description)
			}
			bounded := s.MaxLength != nil || len(s.Enum) > 0
			if name == "spec" && s.Type == "string" && !bounded {
				t.Errorf("%s: a string without maxLength", path)
			}
		})
	}
}

// walk calls visit for every named property below s, and for s itself.
func walk(path string, s *apiextensions.JSONSchemaProps, visit func(string, *apiextensions.JSONSchemaProps)) {
	visit(path, s)
	for name, child := range s.Properties {
		walk(path+"."+name, &child, visit)
	}
	if s.Items != nil && s.Items.Schema != nil {
		walk(path+"[]", s.Items.Schema, visit)
	}
}

func decode(tb testing.TB, object map[string]any) *v1alpha1.OCIRepository {
	tb.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	var repo v1alpha1.OCIRepository
	if err := json.Unmarshal(data, &repo); err != nil {
		tb.Fatalf("accepted by the schema, but not readable: %v\n%s", err, data)
	}
	return &repo
}

// FuzzAcceptedIsReadable: whatever the schema accepts, the controller can
// decode. One stored object that it cannot decode would stop the list of all
// tenants' objects. The durations are within their limits and the URL has a
// host, a path and nothing else.
func FuzzAcceptedIsReadable(f *testing.F) {
	f.Add("oci://registry.example.com:5000/team/app", "5m", "60s", "1.2.0", ".*-rc.*")
	f.Add("oci://user:password@registry.example.com/app", "999999999999h", "0.5m", "", "(")
	f.Add("oci://[::1]:5000/app", "1h1m1s1ms", "1.5h", "-tag", `\p{Greek}`)
	f.Add("oci://host/a//b?x=y#z", "2562047h47m16.854775807s", "1.0000000000000000000000001s", "a:b", "a{1001}")
	a := newAdmission(f)
	f.Fuzz(func(t *testing.T, address, interval, timeout, tag, filter string) {
		object := ocirepository(map[string]any{
			"url": address, "interval": interval, "timeout": timeout,
			"ref": map[string]any{"tag": tag, "semver": "*", "semverFilter": filter},
		})
		if errs := a.admit(t.Context(), object); len(errs) > 0 {
			return
		}
		spec := decode(t, object).Spec
		if d := spec.Interval.Duration; d < time.Second || d > 8760*time.Hour {
			t.Errorf("interval %q is %v", interval, d)
		}
		if d := spec.Timeout.Duration; d < time.Second || d > 30*time.Minute {
			t.Errorf("timeout %q is %v", timeout, d)
		}
		u, err := url.Parse(spec.URL)
		if err != nil {
			// net/url wants a real IP address between brackets, the schema's
			// pattern only its characters; the controller refuses it later.
			if strings.Contains(spec.URL, "[") {
				return
			}
			t.Fatalf("url %q: %v", spec.URL, err)
		}
		if u.Scheme != "oci" || u.Host == "" || u.Path == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" {
			t.Errorf("url %q is %#v", spec.URL, u)
		}
		if strings.Contains(u.Path, ":") || strings.Contains(u.Path, "..") || strings.Contains(u.Path, "//") {
			t.Errorf("url %q has the path %q", spec.URL, u.Path)
		}
	})
}
