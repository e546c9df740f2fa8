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
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Remember reduces a WorkloadIdentity for a cache, and returns the reduced object. Remember is a
// ByObject.Transform; see [memory.Kept]. Remember keeps the labels, because CEL expressions about
// context objects can read the labels. Of the status, Remember keeps only the fields that
// [CachedIdentities.FromOtherRings] reads.
func Remember(object any) (any, error) {
	if identity, ok := object.(*identityv1.WorkloadIdentity); ok {
		identity.Status = identityv1.WorkloadIdentityStatus{Issuer: identity.Status.Issuer, KeyRing: identity.Status.KeyRing}
	}
	return memory.Kept{Labels: true}.Remember(object)
}

// CachedIdentities reads identities from memory, which lags behind the API server. It asks the API
// server if memory has no identity with the requested name and UID.
type CachedIdentities struct {
	// Memory reads from a cache of all identities. The cache has the reduced copies that [Remember]
	// makes.
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
			_, err = Remember(identity) // reduce it like the identities in Memory
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read WorkloadIdentity %s/%s: %w", namespace, name, err)
	}
	return identity, nil
}

// FromOtherRings returns the issuers of all identities whose status has the UID of a KeyRing other
// than the given one. After a reinstallation, these statuses may be the only trace of the former
// KeyRing. Services may still trust its keys.
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
