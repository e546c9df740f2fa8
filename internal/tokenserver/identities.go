package tokenserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// CachedIdentities reads identities from memory. An identity that was just made may not be in
// memory, or only its predecessor of the same name: such an identity is read live.
type CachedIdentities struct {
	// Memory follows all identities.
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
		err = c.Live.Get(ctx, key, identity)
	}
	if err != nil {
		return nil, fmt.Errorf("read WorkloadIdentity %s/%s: %w", namespace, name, err)
	}
	return identity, nil
}
