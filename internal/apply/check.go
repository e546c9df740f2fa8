package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fluxcd/cli-utils/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// State says which objects of an inventory are as they were left.
type State struct {
	same    map[object.ObjMetadata]version
	changed []Entry
}

// Changed returns the entries of objects that somebody else has changed or deleted since the last
// time, or of which this is not known.
func (s *State) Changed() []Entry { return s.changed }

// Has reports whether the object of an entry is as it was left, in a version that the versions have.
func (s *State) Has(e Entry, versions *Versions) bool { return has(s.same, e, versions) }

// unchanged returns the version of an object that is as it was left.
func (s *State) unchanged(key object.ObjMetadata) (version, bool) {
	if s == nil {
		return version{}, false
	}
	v, ok := s.same[key]
	return v, ok
}

// Check compares the objects of an inventory with the versions that were remembered. It reads only
// metadata: the objects of one kind in one namespace with one LIST, and a single object with a GET.
// If the user may not list a kind, it reads each object.
func (a *Applier) Check(ctx context.Context, inventory []Entry, versions *Versions) (*State, error) {
	state := &State{same: make(map[object.ObjMetadata]version, len(inventory))}
	if versions.Len() == 0 {
		state.changed = inventory
		return state, nil
	}
	for _, group := range groupsOf(a.Canonical(inventory)) {
		found, err := a.read(ctx, group)
		if err != nil {
			return nil, err
		}
		for _, e := range group {
			v, ok := found[e.Key]
			if ok && versions.has(e.Key, v.uid, v.resourceVersion) {
				state.same[e.Key] = v
			} else {
				state.changed = append(state.changed, e)
			}
		}
	}
	return state, nil
}

// Read reads the object of an entry, with all its fields. It returns nil if the object does not exist.
func (a *Applier) Read(ctx context.Context, e Entry) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	err := a.get(ctx, e, o)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, a.failure(verbGet, e.Key, err)
	}
	return o, nil
}

// place is where the objects of one LIST are.
type place struct {
	kind      schema.GroupVersionKind
	namespace string
}

// groupsOf groups entries by kind and namespace.
func groupsOf(inventory []Entry) [][]Entry {
	placeOf := func(e Entry) place { return place{e.kind(), e.Key.Namespace} }
	sorted := slices.Clone(inventory)
	slices.SortFunc(sorted, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.kind().String(), b.kind().String()), cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	var groups [][]Entry
	for i, e := range sorted {
		if i == 0 || placeOf(e) != placeOf(sorted[i-1]) {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], e)
	}
	return groups
}

// Bounds of a LIST. More objects than those of the inventory can have the owner's labels, since
// everybody with rights in the namespace can write labels.
const (
	pageSize   = 500
	extraPages = 2
)

// read returns the versions of the entries' objects that exist. All entries have the same kind and
// namespace.
func (a *Applier) read(ctx context.Context, entries []Entry) (map[object.ObjMetadata]version, error) {
	found := make(map[object.ObjMetadata]version, len(entries))
	if len(entries) > 1 && isKind(entries[0].kind()) {
		err := a.list(ctx, entries, found)
		if !apierrors.IsForbidden(err) && !apierrors.IsMethodNotSupported(err) && !isUnserved(err) && !apimeta.IsNoMatchError(err) {
			return found, a.unlessGone(verbList, entries[0], err)
		}
	}
	for _, e := range entries {
		o, err := a.metadata(ctx, e)
		if err != nil {
			if err = a.unlessGone(verbGet, e, err); err != nil {
				return nil, err
			}
			continue
		}
		found[e.Key] = version{o.UID, o.ResourceVersion}
	}
	return found, nil
}

// list adds the versions of all objects that have the owner's labels.
func (a *Applier) list(ctx context.Context, entries []Entry, found map[object.ObjMetadata]version) error {
	kind := entries[0].kind()
	options := []client.ListOption{client.InNamespace(entries[0].Key.Namespace), client.MatchingLabels(a.labels()), client.Limit(pageSize)}
	next := ""
	for range len(entries)/pageSize + 1 + extraPages {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := a.client.List(ctx, page, append(options, client.Continue(next))...); err != nil {
			return err
		}
		for i := range page.Items {
			o := &page.Items[i]
			found[object.ObjMetadata{Namespace: o.Namespace, Name: o.Name, GroupKind: kind.GroupKind()}] = version{o.UID, o.ResourceVersion}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
	return nil
}

// metadata reads the metadata of an object, as get does.
func (a *Applier) metadata(ctx context.Context, e Entry) (*metav1.PartialObjectMetadata, error) {
	o := &metav1.PartialObjectMetadata{}
	return o, a.get(ctx, e, o)
}

// readable is an object whose kind is not known when the program is built.
type readable interface {
	client.Object

	SetGroupVersionKind(kind schema.GroupVersionKind)
}

// get reads an object. If the API server does not serve the entry's version of the kind any more, get
// uses another one. If the API server does not have the kind, the error is that of a RESTMapper
// without a match.
func (a *Applier) get(ctx context.Context, e Entry, o readable) error {
	mapping, err := a.mapping(e)
	if err == nil {
		o.SetGroupVersionKind(mapping.GroupVersionKind)
		err = a.client.Get(ctx, e.objectKey(), o)
	}
	if !isUnserved(err) || !isKind(e.kind()) {
		return err
	}
	// The client's RESTMapper never forgets a kind that it has once seen. So ask the API server.
	served, err := a.served.kinds()
	if err != nil {
		return err
	}
	mappings, err := served.RESTMappings(e.Key.GroupKind)
	if err != nil {
		return err
	}
	for _, mapping := range mappings {
		o.SetGroupVersionKind(mapping.GroupVersionKind)
		if err = a.client.Get(ctx, e.objectKey(), o); !isUnserved(err) {
			return err
		}
	}
	return fmt.Errorf("the API server serves no version of %s, although it lists the kind", e.Key.GroupKind)
}

// served has the kinds that the API server serves. They are read when a kind is missing for the first
// time. Then other kinds cost no discovery, however many missing ones a tenant names. A served is safe
// for concurrent use.
type served struct {
	discover func() (apimeta.RESTMapper, error)

	mu    sync.Mutex // guards known
	known apimeta.RESTMapper
}

// kinds returns the kinds.
func (s *served) kinds() (known apimeta.RESTMapper, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known, err = s.discover()
	}
	return s.known, err
}

// areKnown reports whether the kinds were read.
func (s *served) areKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known != nil
}

// forget makes the next call of kinds read them again.
func (s *served) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = nil
}

// isUnserved reports whether the API server does not know the path of a request. If it knows the path,
// but not the object, the answer names the object.
func isUnserved(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// unlessGone returns nil if the object or its kind does not exist. Otherwise it explains the error.
func (a *Applier) unlessGone(verb string, e Entry, err error) error {
	if err == nil || apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return nil
	}
	return a.failure(verb, e.Key, err)
}
