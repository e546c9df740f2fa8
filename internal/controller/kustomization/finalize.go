package kustomization

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Finalize implements object.Kind. It deletes the applied objects as the tenant, if the
// Kustomization's deletion policy says so. If nobody can act as the tenant any more, the
// Kustomization is deleted, and an event lists the objects that stay.
func (k *kind) Finalize(ctx context.Context, o *v1alpha1.Kustomization) error {
	err := k.deleteObjects(ctx, o)
	if _, stays := errors.AsType[*object.LeftoverError](err); err == nil || stays {
		k.records.forget(o.UID)
	}
	return err
}

func (k *kind) deleteObjects(ctx context.Context, o *v1alpha1.Kustomization) error {
	if !deletes(o.Spec) {
		return nil
	}
	inventory, err := k.readInventory(ctx, o)
	if err != nil || len(inventory) == 0 {
		return err
	}
	account, err := k.account(o)
	if err != nil {
		return leftover(inventory, err)
	}
	tenant, err := k.Clients.As(ctx, account)
	if code := auth.CodeOf(err); code == auth.CodeSubjectNotFound || code == auth.CodeProofDenied {
		return leftover(inventory, err)
	}
	if err != nil {
		return err
	}
	applier := k.newApplier(tenant, o, nil)
	pruned, err := applier.Prune(ctx, inventory)
	failed, known := errors.AsType[*apply.Error](err)
	switch {
	case known && (failed.Reason == apply.ReasonImpersonation || failed.Reason == apply.ReasonTerminating):
		return leftover(pruned.Failed, err)
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
	switch s.DeletionPolicy {
	case v1alpha1.DeletionPolicyDelete, v1alpha1.DeletionPolicyWaitForTermination:
		return true
	case v1alpha1.DeletionPolicyOrphan:
		return false
	default:
		return s.Prune
	}
}

// leftover returns the error for objects that nobody can delete.
func leftover(entries []apply.Entry, cause error) error {
	return &object.LeftoverError{Message: fmt.Sprintf("%s stay in the cluster, because nobody can act as their tenant: %v; delete them by hand", namesOf(entries), cause)}
}

// terminatingError says that deleted objects still exist.
type terminatingError struct{ left []apply.Entry }

func (e *terminatingError) Error() string {
	return namesOf(e.left) + " are being deleted; if they stay, look at their finalizers"
}

// maxNames is how many objects an error names.
const maxNames = 10

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
