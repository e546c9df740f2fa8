package kustomization

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Finalize implements object.Kind. It deletes the applied objects as the tenant, if the
// Kustomization's deletion policy says so. If nobody can act as the tenant any more, the
// Kustomization is deleted, and an event lists the objects that stay.
func (k *kind) Finalize(ctx context.Context, o *v1alpha1.Kustomization) error {
	if !deletes(o.Spec) {
		return nil
	}
	inventory, err := k.readInventory(ctx, o)
	if err != nil || len(inventory) == 0 {
		return err
	}
	var account auth.Subject
	if o.Spec.KubeConfig == nil {
		if account, err = k.account(o); err != nil {
			return leftover(ctx, inventory, err)
		}
	}
	to, err := k.destination(ctx, o, account)
	if err != nil && userIsGone(err) {
		return leftover(ctx, inventory, err)
	}
	if err != nil {
		return err
	}
	defer to.close()
	// Errors of deletions have no values of the objects.
	applier := newApplier(to, apply.Owner{Namespace: o.Namespace, Name: o.Name}, false)
	pruned, err := applier.Prune(ctx, inventory, nil)
	failed, known := errors.AsType[*apply.Error](err)
	switch {
	// The owner of another cluster can permit the impersonation again.
	case known && (failed.Reason == apply.ReasonImpersonation && to.cluster == "" || failed.Reason == apply.ReasonTerminating):
		return leftover(ctx, pruned.Failed, err)
	case err != nil:
		return err
	case o.Spec.DeletionPolicy != v1alpha1.DeletionPolicyWaitForTermination:
		return nil
	}
	left, err := applier.Remaining(ctx, apply.Without(inventory, pruned.Left))
	if err != nil || len(left) == 0 {
		return err
	}
	return &terminatingError{left}
}

// deletes reports whether the applied objects are deleted with their Kustomization.
func deletes(s v1alpha1.KustomizationSpec) bool {
	if s.Suspend {
		return false // a suspended Kustomization changes nothing, also when it is deleted
	}
	switch s.DeletionPolicy {
	case v1alpha1.DeletionPolicyDelete, v1alpha1.DeletionPolicyWaitForTermination:
		return true
	case v1alpha1.DeletionPolicyOrphan:
		return false
	default:
		return s.Prune
	}
}

// leftover returns the error for objects that nobody can delete. It logs the names of all: the error
// has only the first, and no event can be made in a namespace that is being deleted.
func leftover(ctx context.Context, entries []apply.Entry, cause error) error {
	for some := range slices.Chunk(entries, namesPerLine) {
		var ids []string
		for _, e := range some {
			ids = append(ids, e.ID())
		}
		log.FromContext(ctx).Info("objects of a deleted Kustomization stay", "objects", ids)
	}
	return &object.LeftoverError{Message: fmt.Sprintf("%s stay in the cluster, because nobody can act as their tenant: %v; delete them by hand", namesOf(entries), cause)}
}

// terminatingError says that deleted objects still exist.
type terminatingError struct{ left []apply.Entry }

func (e *terminatingError) Error() string {
	return namesOf(e.left) + " are being deleted; if they stay, look at their finalizers"
}

const (
	// maxNames is how many objects an error names.
	maxNames = 10
	// namesPerLine is how many objects one line of the log names.
	namesPerLine = 50
)

func namesOf(entries []apply.Entry) string {
	var names []string
	for i, e := range entries {
		if i == maxNames {
			names = append(names, fmt.Sprintf("%d more", len(entries)-maxNames))
			break
		}
		names = append(names, e.String())
	}
	return strings.Join(names, ", ")
}
