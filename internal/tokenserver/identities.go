package tokenserver

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
)

// Remember removes the fields of a WorkloadIdentity that no token depends on, for
// ByObject.Transform of controller-runtime's cache. Annotations, owners, managed fields and
// conditions may have megabytes. Of the status, Remember keeps the fields that
// [CachedIdentities.FromOtherRings] reads.
func Remember(object any) (any, error) {
	identity, ok := object.(*identityv1.WorkloadIdentity)
	if !ok {
		return object, nil // object is a tombstone: the watch has missed a deletion
	}
	identity.Annotations, identity.OwnerReferences, identity.ManagedFields = nil, nil, nil
	identity.Status = identityv1.WorkloadIdentityStatus{Issuer: identity.Status.Issuer, KeyRing: identity.Status.KeyRing}
	issuer.Bound(identity)
	return identity, nil
}

// CachedIdentities reads identities from memory. If an identity was just made, memory may not have
// it, or may have a deleted identity of the same name. Such an identity is read live.
type CachedIdentities struct {
	// Memory follows all identities, as [Remember] returns them.
	Memory client.Reader
	// Live asks the API server.
	Live client.Reader
}

var _ Identities = CachedIdentities{}

// Get implements [Identities]. Callers must not change the result.
func (c CachedIdentities) Get(ctx context.Context, namespace, name string, uid types.UID) (*identityv1.WorkloadIdentity, error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	identity := &identityv1.WorkloadIdentity{}
	err := c.Memory.Get(ctx, key, identity, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && uid != "" && identity.UID != uid {
		identity = &identityv1.WorkloadIdentity{}
		if err = c.Live.Get(ctx, key, identity); err == nil {
			_, err = Remember(identity) // so that the result is the same as from memory
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read WorkloadIdentity %s/%s: %w", namespace, name, err)
	}
	return identity, nil
}

// FromOtherRings returns the issuers of identities whose status names a KeyRing with a UID other
// than ring. Services may still know keys of the other KeyRing. With these issuers, a release that
// is installed again detects a former release, even if only the status of identities is left.
func (c CachedIdentities) FromOtherRings(ctx context.Context, ring types.UID) (issuers []string, err error) {
	var all identityv1.WorkloadIdentityList
	if err := c.Memory.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list WorkloadIdentities: %w", err)
	}
	found := map[string]bool{}
	for i := range all.Items {
		if status := &all.Items[i].Status; status.KeyRing != "" && status.KeyRing != string(ring) {
			found[status.Issuer] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}
