package desired

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/apply"
)

// InventoryError says that an entry of an inventory cannot be read.
type InventoryError struct {
	// Index is the place of the entry in status.inventory.entries.
	Index int
	// Err says what is wrong.
	Err error
}

// Error implements error.
func (e *InventoryError) Error() string {
	return fmt.Sprintf("status.inventory.entries[%d]: %v; remove the entry, and delete its object by hand", e.Index, e.Err)
}

// Unwrap returns what is wrong.
func (e *InventoryError) Unwrap() error { return e.Err }

// Inventory returns the entries of status.inventory, sorted. The error is an [*InventoryError].
func Inventory(o *v1alpha1.Kustomization) ([]apply.Entry, error) {
	if o.Status.Inventory == nil {
		return nil, nil
	}
	var entries []apply.Entry
	for i, stored := range o.Status.Inventory.Entries {
		e, err := apply.ParseEntry(stored.ID, stored.Version)
		if err != nil {
			return nil, &InventoryError{Index: i, Err: err}
		}
		entries = append(entries, e)
	}
	apply.Sort(entries)
	return entries, nil
}

// Yields reports whether the Kustomization other leaves an object to the Kustomization owner. This
// is so if other does not exist, or if the inventory of other does not have the object. The function
// canonical is [apply.Applier.Canonical].
func Yields(ctx context.Context, reader client.Reader, owner, other apply.Owner, canonical func([]apply.Entry) []apply.Entry, e apply.Entry) (bool, error) {
	if other.Namespace != owner.Namespace {
		return false, nil // nobody may learn what another namespace has
	}
	whole := &v1alpha1.Kustomization{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: other.Namespace, Name: other.Name}, whole)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	entries, err := Inventory(whole)
	if err != nil {
		return false, nil //nolint:nilerr // an inventory that cannot be read may have the object
	}
	return len(apply.Without([]apply.Entry{e}, canonical(entries))) == 1, nil
}
