package apply

import (
	"context"
	"sort"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pruned says what [Applier.Prune] has done.
type Pruned struct {
	// Deleted are the objects that were deleted now. An object with finalizers may still exist.
	Deleted []Entry
	// Left are the objects that must not be deleted: an annotation forbids that, or another owner
	// has the object.
	Left []Entry
	// Failed are the objects that could not be deleted. Keep them in the inventory.
	Failed []Entry
}

// Prune deletes objects that are no longer wanted, in the opposite order of Apply. It goes on after
// an error, and returns the first one. Objects that do not exist are in no list of the result. The
// objects of applied stay, whatever their entries say. Nil has no objects.
func (a *Applier) Prune(ctx context.Context, entries []Entry, applied *Result) (Pruned, error) {
	var pruned Pruned
	var first error
	for _, e := range deletionOrder(a.Canonical(entries)) {
		deleted, left, err := a.prune(ctx, e, applied)
		switch {
		case err != nil:
			pruned.Failed = append(pruned.Failed, e)
			if first == nil {
				first = err
			}
		case deleted:
			pruned.Deleted = append(pruned.Deleted, e)
		case left:
			pruned.Left = append(pruned.Left, e)
		}
	}
	if cause := context.Cause(ctx); first != nil && cause != nil {
		first = cause
	}
	return pruned, first
}

// Remaining returns the entries whose objects still exist.
func (a *Applier) Remaining(ctx context.Context, entries []Entry) ([]Entry, error) {
	var left []Entry
	for _, e := range a.Canonical(entries) {
		_, err := a.metadata(ctx, e)
		switch {
		case err == nil:
			left = append(left, e)
		case a.unlessGone(verbGet, e, err) != nil:
			return nil, a.unlessGone(verbGet, e, err)
		}
	}
	return left, nil
}

// prunable reads an object that is no longer wanted. It returns the object's metadata if the object
// must be deleted. The result left says that the object must stay.
func (a *Applier) prunable(ctx context.Context, e Entry, applied *Result) (o *metav1.PartialObjectMetadata, left bool, err error) {
	o, err = a.metadata(ctx, e)
	switch {
	case err != nil:
		return nil, false, a.unlessGone(verbGet, e, err)
	case applied.has(o.UID):
		return nil, false, nil
	case a.keeps(o):
		return nil, true, nil
	case o.DeletionTimestamp != nil:
		return nil, false, nil
	}
	return o, false, nil
}

// prune deletes one object.
func (a *Applier) prune(ctx context.Context, e Entry, applied *Result) (deleted, left bool, err error) {
	o, left, err := a.prunable(ctx, e, applied)
	if o == nil || err != nil {
		return false, left, err
	}
	// The preconditions say which object was examined. Another object of the same name stays.
	err = a.client.Delete(ctx, o, client.Preconditions{UID: &o.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return false, false, a.failure(verbDelete, e.Key, err)
	}
	return true, false, nil
}

// keeps reports whether an object must not be deleted. An object that Flux applies, too, is Flux's.
func (a *Applier) keeps(o *metav1.PartialObjectMetadata) bool {
	for name, value := range a.labels() {
		if o.Labels[name] != value {
			return true
		}
	}
	whole := &unstructured.Unstructured{}
	whole.SetLabels(o.Labels)
	whole.SetAnnotations(o.Annotations)
	if _, ok := fluxOwner(whole); ok {
		return true
	}
	return utils.AnyInMetadata(whole, selector(pair{pruneName, "disabled"}, pair{reconcileName, "disabled"}, pair{ssaName, "Ignore"}))
}

// deletionOrder returns the entries in the order in which their objects are deleted.
func deletionOrder(entries []Entry) []Entry {
	objects := make([]*unstructured.Unstructured, 0, len(entries))
	for _, e := range entries {
		objects = append(objects, e.empty())
	}
	sort.Sort(sort.Reverse(ssa.SortableUnstructureds(objects)))
	sorted := make([]Entry, 0, len(entries))
	for _, o := range objects {
		sorted = append(sorted, EntryOf(o))
	}
	return sorted
}
