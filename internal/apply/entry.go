package apply

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/fluxcd/cli-utils/pkg/object"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
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

// NewEntry returns the entry of an object with this kind and name. An error says that there can be no
// such kind.
func NewEntry(kind schema.GroupVersionKind, namespace, name string) (Entry, error) {
	e := Entry{Key: object.ObjMetadata{Namespace: namespace, Name: name, GroupKind: kind.GroupKind()}, Version: kind.Version}
	if !isKind(kind) {
		return Entry{}, fmt.Errorf("%.300q is no kind of objects", kind.String())
	}
	return e, nil
}

// ParseEntry is the inverse of [Entry.ID]. The version is not part of the ID.
func ParseEntry(id, version string) (Entry, error) {
	key, err := object.ParseObjMetadata(id)
	e := Entry{Key: key, Version: version}
	if err != nil || key.Name == "" || !isKind(e.kind()) {
		return Entry{}, fmt.Errorf("%.300q with version %.60q is no entry of an inventory", id, version)
	}
	return e, nil
}

var (
	groupPattern   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`)
	versionPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	kindPattern    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
)

// isKind reports whether the text can be a kind of an API server. Group and version become parts of
// the paths of requests.
func isKind(kind schema.GroupVersionKind) bool {
	return len(kind.Group) <= 253 && groupPattern.MatchString(kind.Group) && len(kind.Version) <= 63 && versionPattern.MatchString(kind.Version) &&
		len(kind.Kind) <= 253 && kindPattern.MatchString(kind.Kind)
}

// Canonical returns the entries as the API server names their objects: an object of a cluster-scoped
// kind has no namespace. Of two entries of one object, the first stays. An entry whose kind is
// unknown stays as it is.
func (a *Applier) Canonical(entries []Entry) []Entry {
	seen := make(map[object.ObjMetadata]bool, len(entries))
	canonical := make([]Entry, 0, len(entries))
	for _, e := range entries {
		if e.Key.Namespace != "" && a.isClusterScoped(e) {
			e.Key.Namespace = ""
		}
		if !seen[e.Key] {
			seen[e.Key] = true
			canonical = append(canonical, e)
		}
	}
	return canonical
}

func (a *Applier) isClusterScoped(e Entry) bool {
	mapping, err := a.mapping(e)
	return err == nil && mapping.Scope.Name() == apimeta.RESTScopeNameRoot
}

// mapping returns how the API server serves the entry's kind. If the API server does not serve the
// entry's version, another version of the kind is as good.
func (a *Applier) mapping(e Entry) (*apimeta.RESTMapping, error) {
	if !isKind(e.kind()) {
		return nil, &apimeta.NoKindMatchError{GroupKind: e.Key.GroupKind, SearchedVersions: []string{e.Version}}
	}
	if !a.served.areKnown() {
		mapping, err := a.client.RESTMapper().RESTMapping(e.Key.GroupKind, e.Version)
		if !apimeta.IsNoMatchError(err) {
			return mapping, err
		}
	}
	kinds, err := a.served.kinds()
	if err != nil {
		return nil, err
	}
	mapping, err := kinds.RESTMapping(e.Key.GroupKind, e.Version)
	if apimeta.IsNoMatchError(err) {
		return kinds.RESTMapping(e.Key.GroupKind)
	}
	return mapping, err
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
