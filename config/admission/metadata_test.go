package admission_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/config/admission/admissiontest"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/memory"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const file = "metadata.yaml"

// names returns n different names of the given length. The names are valid finalizers and valid
// keys of labels.
func names(n, length int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("a.io/%0*d", length-len("a.io/"), i))
	}
	return list
}

// object returns an object with these labels and finalizers.
func object(labels, finalizers []string) map[string]any {
	metadata := map[string]any{"name": "app", "namespace": "tenant-a"}
	if labels != nil {
		set := map[string]any{}
		for _, name := range labels {
			set[name] = ""
		}
		metadata["labels"] = set
	}
	if finalizers != nil {
		list := []any{}
		for _, name := range finalizers {
			list = append(list, name)
		}
		metadata["finalizers"] = list
	}
	return map[string]any{"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.OCIRepositoryKind, "metadata": metadata}
}

// TestMetadata checks which objects the admission policy refuses because of labels or finalizers.
//
//   - When a user creates an object, the policy must refuse exactly the objects that Lanyard's
//     programs refuse (see [memory.Refused]).
//   - The policy must refuse an update only if the labels or the finalizers grow, and become larger
//     than [memory.MaxMetadata].
//   - The API server limits the cost of evaluating a policy. Even for the largest objects, the
//     policy must not exceed this limit.
func TestMetadata(t *testing.T) {
	const fit = memory.MaxMetadata / (10 + memory.EntryCost) // number of entries of ten characters that fit into MaxMetadata
	huge := names(120_000, 12)                               // 1.4 MB together
	policy := admissiontest.New(t, file, v1alpha1.Version)
	for name, c := range map[string]struct {
		before, after []string // entries of the field; if "before" is nil, the object is created
		refused       bool
	}{
		"none":                            {nil, nil, false},
		"what fits":                       {nil, names(fit, 10), false},
		"one more":                        {nil, names(fit+1, 10), true},
		"a few long ones":                 {nil, names(70, 300), true},
		"very many":                       {nil, names(300, 10), true},
		"1.4 MB":                          {nil, huge, true},
		"growth to what fits":             {names(1, 10), names(fit, 10), false},
		"growth beyond":                   {names(fit, 10), names(fit+1, 10), true},
		"growth from few to very many":    {names(fit, 10), names(300, 10), true},
		"growth of what is too large":     {names(fit+1, 10), names(fit+2, 10), true},
		"growth of very many":             {names(300, 10), names(301, 10), true},
		"growth to 1.4 MB":                {names(300, 10), huge, true},
		"too large, and unchanged":        {names(fit+1, 10), names(fit+1, 10), false},
		"too large, and smaller":          {names(fit+2, 10), names(fit+1, 10), false},
		"very many, and unchanged":        {names(300, 10), names(300, 10), false},
		"very many, and one less":         {names(300, 10), names(299, 10), false},
		"very many, and now only many":    {names(300, 10), names(256, 10), false},
		"1.4 MB, and unchanged":           {huge, huge, false},
		"1.4 MB, and smaller":             {huge, huge[1:], false},
		"1.4 MB, and then what fits":      {huge, names(fit, 10), false},
		"1.4 MB, and then nothing":        {huge, nil, false},
		"an empty list, and one too many": {[]string{}, names(fit+1, 10), true},
	} {
		for field, made := range map[string]func([]string) map[string]any{
			"metadata.labels":     func(list []string) map[string]any { return object(list, nil) },
			"metadata.finalizers": func(list []string) map[string]any { return object(nil, list) },
		} {
			t.Run(name+" "+field, func(t *testing.T) {
				var before map[string]any
				if c.before != nil {
					before = made(c.before)
				}
				got := policy.Admit(t, made(c.after), before)
				if (len(got) > 0) != c.refused || c.refused && (len(got) != 1 || !strings.HasPrefix(got[0], field+": ") || !strings.Contains(got[0], fmt.Sprint(memory.MaxMetadata))) {
					t.Errorf("%q, want a refusal: %v", got, c.refused)
				}
				if c.before != nil {
					return
				}
				o := &v1alpha1.OCIRepository{}
				must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(made(c.after), o))
				_, err := memory.Kept{}.Remember(o)
				must.Succeed(t, err)
				if excess := memory.Refused(o); (excess != nil) != c.refused || excess != nil && excess.Field != field {
					t.Errorf("programs refuse %+v, and the policy %q", excess, got)
				}
			})
		}
	}
	// The policy always lets the controller add its finalizer. The policy also lets users remove
	// finalizers from an object whose labels are too large.
	if got := policy.Admit(t, object(nil, append(names(fit, 10), meta.Finalizer)), object(nil, names(fit, 10))); len(got) > 0 {
		t.Errorf("Lanyard's own finalizer: %q", got)
	}
	for _, again := range []int{200, 300} {
		ours := slices.Repeat([]string{meta.Finalizer}, again)
		if got := policy.Admit(t, object(nil, ours), object(nil, ours[:1])); len(got) != 1 {
			t.Errorf("Lanyard's own finalizer, %d times: %q", again, got)
		}
	}
	if got := policy.Admit(t, object(huge[:60_000], nil), object(huge[:60_000], huge[:60_000])); len(got) > 0 {
		t.Errorf("the finalizers are gone, and the labels unchanged: %q", got)
	}
}

// TestMetadataOfAllKinds checks that the policy applies to all API groups of Lanyard's kinds (see
// [kinds.All]). In each group, the policy must apply to all kinds, but to no subresource.
func TestMetadataOfAllKinds(t *testing.T) {
	data, err := os.ReadFile(file)
	must.Succeed(t, err)
	first, _, _ := strings.Cut(string(data), "\n---\n")
	var policy admissionv1.ValidatingAdmissionPolicy
	must.Succeed(t, yaml.UnmarshalStrict([]byte(first), &policy))
	var groups []string
	for _, kind := range kinds.All() {
		if !slices.Contains(groups, kind.Group) {
			groups = append(groups, kind.Group)
		}
	}
	rules := policy.Spec.MatchConstraints.ResourceRules
	if len(rules) != 1 || !slices.Equal(slices.Sorted(slices.Values(rules[0].APIGroups)), slices.Sorted(slices.Values(groups))) ||
		!slices.Equal(rules[0].Resources, []string{"*"}) || !slices.Equal(rules[0].APIVersions, []string{"*"}) {
		t.Errorf("the policy is for %+v, want all kinds of %q", rules, groups)
	}
}
