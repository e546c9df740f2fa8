package apply

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fluxcd/cli-utils/pkg/object"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Entry names an object in an inventory.
type Entry struct {
	// Key is the object's namespace (empty for a cluster-scoped object), name, group and kind.
	Key object.ObjMetadata
	// Version is the version of the API with which the object was applied, such as "v1".
	Version string
}

// EntryOf returns the entry of an object.
func EntryOf(o *unstructured.Unstructured) Entry {
	return Entry{Key: keyOf(o), Version: o.GroupVersionKind().Version}
}

// ParseEntry is the inverse of [Entry.ID]. The version is not part of the ID.
func ParseEntry(id, version string) (Entry, error) {
	key, err := object.ParseObjMetadata(id)
	if err != nil || key.Name == "" || key.GroupKind.Kind == "" || version == "" {
		return Entry{}, fmt.Errorf("%.300q with version %.60q is no entry of an inventory", id, version)
	}
	return Entry{Key: key, Version: version}, nil
}

// ID returns the entry's key as text: "<namespace>_<name>_<group>_<kind>". Flux writes the same text
// into its inventories. A colon in the name of an RBAC object becomes "__".
func (e Entry) ID() string { return e.Key.String() }

// String returns the entry for people, such as "Deployment/apps/web".
func (e Entry) String() string { return describe(e.Key) }

// kind returns the group, the version and the kind of the object.
func (e Entry) kind() schema.GroupVersionKind { return e.Key.GroupKind.WithVersion(e.Version) }

func (e Entry) objectKey() client.ObjectKey {
	return client.ObjectKey{Namespace: e.Key.Namespace, Name: e.Key.Name}
}

// empty returns an object that has only the entry's kind, namespace and name.
func (e Entry) empty() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(e.kind())
	o.SetNamespace(e.Key.Namespace)
	o.SetName(e.Key.Name)
	return o
}

func keyOf(o *unstructured.Unstructured) object.ObjMetadata {
	return object.ObjMetadata{Namespace: o.GetNamespace(), Name: o.GetName(), GroupKind: o.GroupVersionKind().GroupKind()}
}

// describe names an object for people.
func describe(key object.ObjMetadata) string {
	if key.Namespace == "" {
		return key.GroupKind.Kind + "/" + key.Name
	}
	return key.GroupKind.Kind + "/" + key.Namespace + "/" + key.Name
}

// Without returns the entries of all whose key is not in others.
func Without(all, others []Entry) []Entry {
	known := make(map[object.ObjMetadata]bool, len(others))
	for _, e := range others {
		known[e.Key] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(e Entry) bool { return known[e.Key] })
}

// Sort sorts entries by their ID.
func Sort(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID(), b.ID()) })
}
