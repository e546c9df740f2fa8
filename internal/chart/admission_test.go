//go:build !concurrent

package chart_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/config/admission/admissiontest"
	"github.com/lanyard-dev/lanyard/internal/chart"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// policy returns the chart's admission policy with the given name, for objects of the given API
// version. It removes the match conditions, so the policy applies to every user.
func policy(t *testing.T, values map[string]any, name, version string) admissiontest.Policy {
	t.Helper()
	objects, err := chart.Objects(release(values))
	must.Succeed(t, err)
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "ValidatingAdmissionPolicy" && o.GetName() == name
	})
	if i < 0 {
		t.Fatalf("the chart has no policy %s", name)
	}
	unstructured.RemoveNestedField(objects[i].Object, "spec", "matchConditions")
	data, err := yaml.Marshal(objects[i].Object)
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	must.Succeed(t, os.WriteFile(file, data, 0o600))
	return admissiontest.New(t, file, version)
}

// TestControllerPolicy checks which changes to an object's finalizers and annotations the policy
// lanyard-controller allows. The policy applies to updates by the program lanyard-controller. Some
// cases have very large objects: the policy must not exceed the API server's cost limit for CEL.
// Otherwise, the controller could not remove its finalizer from such an object.
func TestControllerPolicy(t *testing.T) {
	policy := policy(t, nil, "lanyard-controller", v1alpha1.Version)
	made := func(annotations int, finalizers ...string) map[string]any {
		set, list := map[string]any{}, []any{}
		for i := range annotations {
			set[fmt.Sprintf("%04x", i)] = ""
		}
		for _, name := range finalizers {
			list = append(list, name)
		}
		return map[string]any{
			"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.OCIRepositoryKind,
			"metadata": map[string]any{"name": "app", "annotations": set, "finalizers": list},
		}
	}
	var many []string
	for i := range 120_000 {
		many = append(many, fmt.Sprintf("a.io/%06d", i))
	}
	for name, c := range map[string]struct {
		before, after []string
		allowed       bool
	}{
		"nothing":                {nil, nil, true},
		"unchanged":              {[]string{"a/a", meta.Finalizer}, []string{"a/a", meta.Finalizer}, true},
		"ours is added":          {[]string{"a/a"}, []string{"a/a", meta.Finalizer}, true},
		"ours is the first":      {nil, []string{meta.Finalizer}, true},
		"ours is removed":        {[]string{"a/a", meta.Finalizer, "b/b"}, []string{"a/a", "b/b"}, true},
		"ours is the last":       {[]string{meta.Finalizer}, nil, true},
		"ours, twice":            {[]string{meta.Finalizer, meta.Finalizer}, nil, true},
		"of 120,000":             {append(slices.Clone(many), meta.Finalizer), many, true},
		"another is removed":     {[]string{"a/a", meta.Finalizer}, nil, false},
		"another is added":       {[]string{meta.Finalizer}, []string{"a/a"}, false},
		"a longer name":          {[]string{meta.Finalizer + "2"}, nil, false},
		"a longer name in front": {[]string{"x" + meta.Finalizer}, []string{"x"}, false},
		"another order":          {[]string{"a/a", "b/b"}, []string{"b/b", "a/a"}, false},
		"two become one":         {[]string{"a/a", "b/b"}, []string{"a/ab/b"}, false},
		"another of 120,000":     {append(slices.Clone(many), meta.Finalizer), many[1:], false},
	} {
		annotations := 1
		if len(c.before) > 1000 {
			annotations = 60_000 // 240 KB of keys; the API server accepts 256 KiB of annotations
		}
		if got := policy.Admit(t, made(annotations, c.after...), made(annotations, c.before...)); (len(got) == 0) != c.allowed {
			t.Errorf("%s: %q, want allowed: %v", name, got, c.allowed)
		}
	}
	if got := policy.Admit(t, made(1), made(2)); len(got) != 1 {
		t.Errorf("an annotation is removed: %q", got)
	}
}

// TestBindingsPolicy checks which updates of a Secret the policy lanyard-bindings allows the
// identity controller. The controller may change only its own labels and annotations. From a Secret
// that the controller has written, the controller can always remove the credential. This must work
// even if a tenant has added very many labels and annotations.
func TestBindingsPolicy(t *testing.T) {
	policy := policy(t, map[string]any{
		"issuer":   map[string]any{"url": "https://issuer.example.com"},
		"identity": map[string]any{"bindings": true}, "rbac": map[string]any{"tenantNamespaces": []any{"tenant-a"}},
	}, "lanyard-bindings", "v1")
	const binding, issued, provider = "workloadidentity.lanyard.dev/binding", "workloadidentity.lanyard.dev/issued-at", "workloadidentity.lanyard.dev/provider"
	type set = map[string]any
	own, label := set{binding: "b", issued: "now"}, set{provider: "aws"}
	with := func(s set, more ...string) set {
		s = maps.Clone(s)
		for _, key := range more {
			s[key] = "x"
		}
		return s
	}
	var many []string
	for i := range 60_000 {
		many = append(many, fmt.Sprintf("%04x", i))
	}
	secret := func(data string, annotations, labels set) set {
		return set{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": set{"token": data},
			"metadata": set{"name": "cloudprovider", "annotations": annotations, "labels": labels},
		}
	}
	for name, c := range map[string]struct {
		before, after set
		allowed       bool
	}{
		"data":                         {secret("a", own, label), secret("", own, label), true},
		"own annotation":               {secret("a", own, label), secret("", set{binding: "b"}, label), true},
		"data, many of others":         {secret("a", with(own, many...), with(label, many...)), secret("", with(own, many...), with(label, many...)), true},
		"data, without the label":      {secret("a", own, set{}), secret("", own, set{}), true},
		"the label alone":              {secret("a", own, label), secret("", own, set{}), false},
		"an annotation of others":      {secret("a", with(own, "x"), label), secret("", own, label), false},
		"a label of others":            {secret("a", own, with(label, "x")), secret("", own, label), false},
		"data of another's":            {secret("a", set{}, set{}), secret("", set{}, set{}), false},
		"data of another's with label": {secret("a", set{}, label), secret("", set{}, label), false},
	} {
		if got := policy.Admit(t, c.after, c.before); (len(got) == 0) != c.allowed {
			t.Errorf("%s: %q, want allowed: %v", name, got, c.allowed)
		}
	}
}
