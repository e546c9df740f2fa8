package apply

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// differences writes differences as texts.
func differences(all []Difference) (texts []string) {
	for _, d := range all {
		text := string(d.Effect) + " " + d.String()
		for _, c := range d.Changes {
			text += fmt.Sprintf(" %s:%v>%v", c.Path, c.Old, c.New)
		}
		texts = append(texts, text)
	}
	return texts
}

// applied returns a server with five applied ConfigMaps, and the inventory.
func applied(t *testing.T, owner Owner) (*server, []Entry) {
	t.Helper()
	s := newServer()
	result, err := New(s, user(), owner, false).Apply(t.Context(), configMaps(5), Options{})
	must.Succeed(t, err)
	s.requests = nil
	return s, result.Entries()
}

// TestDiff compares manifests and an inventory with a cluster. Nothing is ever written.
func TestDiff(t *testing.T) {
	owner := Owner{Namespace: "apps", Name: "app"}
	s, inventory := applied(t, owner)
	// The manifests are those of c-0, c-1, c-2 and two others. The objects c-3 and c-4 have none.
	manifests := configMaps(3)
	manifests[1].Object["data"] = map[string]any{"k": "w"}
	manifests[2].Object["data"] = map[string]any{"k": "w"}
	manifests[2].SetAnnotations(map[string]string{annotation(ssaName): "IfNotPresent"})
	manifests = append(manifests, object1("v1", "ConfigMap", "apps", "new"), object1("v1", "Namespace", "", "new"))
	for key, o := range s.objects {
		if key.Name == "c-4" {
			o.SetAnnotations(map[string]string{annotation(pruneName): "disabled"})
		}
	}
	stored := maps.Clone(s.objects)
	for prune, last := range map[bool]string{true: "deleted", false: "left alone"} {
		s.requests = nil
		copies := []*unstructured.Unstructured{}
		for _, o := range manifests {
			copies = append(copies, o.DeepCopy())
		}
		all, err := New(s, user(), owner, false).Diff(t.Context(), copies, Options{Inventory: inventory}, prune)
		must.Succeed(t, err)
		want := []string{
			"created Namespace/new",
			"unchanged ConfigMap/apps/c-0", "changed ConfigMap/apps/c-1 /data/k:v>w", "skipped ConfigMap/apps/c-2", "created ConfigMap/apps/new",
			"left alone ConfigMap/apps/c-4", last + " ConfigMap/apps/c-3",
		}
		if got := differences(all); !slices.Equal(got, want) {
			t.Errorf("with prune %v: %q", prune, got)
		}
		if s.count("get")+s.count("try") != len(s.requests) || !maps.Equal(stored, s.objects) {
			t.Errorf("requests %q", s.requests)
		}
	}
}

// TestDiffMasks asserts that no value is shown of a Secret, or of any object if the manifests have
// values of Secrets.
func TestDiffMasks(t *testing.T) {
	const before, after = "s3cr3t-before", "s3cr3t-after"
	for _, kind := range []string{"Secret", "ConfigMap"} {
		manifest := func(value string) []*unstructured.Unstructured {
			o := object1("v1", kind, "apps", "a")
			o.Object["data"] = map[string]any{"k": base64.StdEncoding.EncodeToString([]byte(value)), "same": "AA=="}
			o.SetAnnotations(map[string]string{"a": value})
			return []*unstructured.Unstructured{o}
		}
		s := newServer()
		owner := Owner{Namespace: "apps", Name: "app"}
		_, err := New(s, user(), owner, false).Apply(t.Context(), manifest(before), Options{})
		must.Succeed(t, err)
		all, err := New(s, user(), owner, kind != "Secret").Diff(t.Context(), manifest(after), Options{}, true)
		must.Succeed(t, err)
		want := []string{"changed " + kind + "/apps/a /data/k:***>*** (changed) /metadata/annotations/a:***>*** (changed)"}
		if got := differences(all); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		s.fail = func(verb, name string) error {
			if verb == "try" {
				return apierrors.NewInvalid(schema.GroupKind{Kind: kind}, name, field.ErrorList{field.Invalid(field.NewPath("data"), after, "must be positive")})
			}
			return nil
		}
		_, err = New(s, user(), owner, kind != "Secret").Diff(t.Context(), manifest(after), Options{}, true)
		if failed, ok := errors.AsType[*Error](err); !ok || failed.Reason != ReasonInvalid || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestDiffForce asserts that an object is only then recreated if an immutable field has changed, and
// if this is allowed.
func TestDiffForce(t *testing.T) {
	owner := Owner{Namespace: "apps", Name: "app"}
	for name, c := range map[string]struct {
		text  string
		force bool
		want  string
	}{
		"immutable":   {"field is immutable", true, "recreated ConfigMap/apps/c-0"},
		"not allowed": {"field is immutable", false, ""},
		"invalid":     {"must be positive", true, ""},
	} {
		s, inventory := applied(t, owner)
		s.fail = func(verb, name string) error {
			if verb != "try" {
				return nil
			}
			return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, name, field.ErrorList{field.Invalid(field.NewPath("data"), "x", c.text)})
		}
		all, err := New(s, user(), owner, false).Diff(t.Context(), configMaps(1), Options{Inventory: inventory[:1], Force: c.force}, true)
		if got := strings.Join(differences(all), " "); got != c.want || (err == nil) != (c.want != "") || s.count("delete") > 0 {
			t.Errorf("%s: %q, %v, requests %q", name, got, err, s.requests)
		}
	}
}

// TestDiffOwner asserts that an object of another owner is refused, as Apply does.
func TestDiffOwner(t *testing.T) {
	s, _ := applied(t, Owner{Namespace: "apps", Name: "other"})
	_, err := New(s, user(), Owner{Namespace: "apps", Name: "app"}, false).Diff(t.Context(), configMaps(1), Options{}, true)
	if failed, ok := errors.AsType[*Error](err); !ok || failed.Reason != ReasonOwned {
		t.Error(err)
	}
}

// TestDiffOfNewPlaces asserts that objects are created whose namespace, kind or role is created too. The
// API server cannot try these objects. Without the namespace, kind or role, they are refused.
func TestDiffOfNewPlaces(t *testing.T) {
	s := newServer()
	s.fail = func(verb, name string) error {
		switch {
		case verb == "try" && name == "inside":
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "made")
		case verb == "try" && name == "bound":
			return apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"}, "reader")
		default:
			return nil
		}
	}
	a := New(s, user(), Owner{Namespace: "apps", Name: "app"}, false)
	inside, thing := object1("v1", "ConfigMap", "made", "inside"), object1("new.example.com/v1", "Thing", "apps", "a")
	definition := object1("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "things.new.example.com")
	definition.Object["spec"] = map[string]any{"group": "new.example.com", "names": map[string]any{"kind": "Thing"}}
	role, binding := object1("rbac.authorization.k8s.io/v1", "Role", "apps", "reader"), object1("rbac.authorization.k8s.io/v1", "RoleBinding", "apps", "bound")
	binding.Object["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": "reader"}
	for _, lonely := range []*unstructured.Unstructured{inside, thing, binding} {
		if all, err := a.Diff(t.Context(), []*unstructured.Unstructured{lonely.DeepCopy()}, Options{}, true); err == nil {
			t.Errorf("%q", differences(all))
		}
	}
	all, err := a.Diff(t.Context(), []*unstructured.Unstructured{inside, thing, binding, role, object1("v1", "Namespace", "", "made"), definition}, Options{}, true)
	must.Succeed(t, err)
	want := []string{
		"created CustomResourceDefinition/things.new.example.com", "created Namespace/made", "created Thing/apps/a", "created ConfigMap/made/inside",
		"created Role/apps/reader", "created RoleBinding/apps/bound",
	}
	got := differences(all)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
