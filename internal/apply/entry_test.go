package apply

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func object1(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// TestEntryID asserts that the IDs of entries are those of Flux, and that they can be parsed.
func TestEntryID(t *testing.T) {
	for id, o := range map[string]*unstructured.Unstructured{
		"apps_web_apps_Deployment":                                           object1("apps/v1", "Deployment", "apps", "web"),
		"_system__node_rbac.authorization.k8s.io_ClusterRole":                object1("rbac.authorization.k8s.io/v1", "ClusterRole", "", "system:node"),
		"apps_kube-root-ca.crt__ConfigMap":                                   object1("v1", "ConfigMap", "apps", "kube-root-ca.crt"),
		"_widgets.example.com_apiextensions.k8s.io_CustomResourceDefinition": object1("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com"),
	} {
		e := EntryOf(o)
		if e.ID() != id {
			t.Errorf("the ID is %s, want %s", e.ID(), id)
		}
		if parsed, err := ParseEntry(id, e.Version); err != nil || parsed != e {
			t.Errorf("%s is parsed as %+v, %v", id, parsed, err)
		}
		if again := EntryOf(e.empty()); again != e {
			t.Errorf("the empty object is %+v", again)
		}
	}
}

// FuzzParseEntry asserts that what ParseEntry accepts has a name, a kind and a version.
func FuzzParseEntry(f *testing.F) {
	f.Add("apps_web_apps_Deployment", "v1")
	f.Add("___", "v1")
	f.Add("a_b__", "")
	f.Fuzz(func(t *testing.T, id, version string) {
		e, err := ParseEntry(id, version)
		if err == nil && (e.Key.Name == "" || e.Key.GroupKind.Kind == "" || e.Version == "") {
			t.Errorf("%q is parsed as %+v", id, e)
		}
	})
}

// TestOrders asserts how entries are grouped for a LIST, and in which order objects are deleted.
func TestOrders(t *testing.T) {
	var all []Entry
	for _, o := range []*unstructured.Unstructured{
		object1("v1", "Namespace", "", "apps"), object1("v1", "ConfigMap", "apps", "b"), object1("apps/v1", "Deployment", "apps", "web"),
		object1("v1", "ConfigMap", "other", "c"), object1("v1", "ConfigMap", "apps", "a"),
	} {
		all = append(all, EntryOf(o))
	}
	var groups []string
	for _, group := range groupsOf(all) {
		var names []string
		for _, e := range group {
			names = append(names, e.String())
		}
		groups = append(groups, strings.Join(names, " "))
	}
	slices.Sort(groups)
	if want := []string{"ConfigMap/apps/a ConfigMap/apps/b", "ConfigMap/other/c", "Deployment/apps/web", "Namespace/apps"}; !slices.Equal(groups, want) {
		t.Errorf("the groups are %q", groups)
	}
	order := deletionOrder(all)
	if order[0].Key.GroupKind.Kind != "Deployment" || order[len(order)-1].Key.GroupKind.Kind != "Namespace" || len(order) != len(all) {
		t.Errorf("the order is %v", order)
	}
	if rest := Without(all, order[1:]); len(rest) != 1 || rest[0] != order[0] {
		t.Errorf("what is left is %v", rest)
	}
}

// TestVersions asserts that only the remembered version of the remembered object is known.
func TestVersions(t *testing.T) {
	key := EntryOf(object1("v1", "ConfigMap", "apps", "a")).Key
	var nothing *Versions
	if nothing.has(key, "uid", "7") || nothing.Len() != 0 {
		t.Error("nil remembers something")
	}
	v := &Versions{}
	v.add(key, "uid", "7")
	v.add(key, "", "7")
	v.add(key, "uid", "")
	if !v.has(key, "uid", "7") || v.Len() != 1 {
		t.Error("the version is not known")
	}
	other := EntryOf(object1("v1", "ConfigMap", "apps", "b")).Key
	if v.has(key, "uid", "8") || v.has(key, "other", "7") || v.has(other, "uid", "7") {
		t.Error("another version is known")
	}
}
