package sign

import (
	"context"
	"crypto"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// A Store stores the private halves of one ring's keys. It is safe for concurrent use.
type Store interface {
	// List returns all private halves in the store. Each kid is the thumbprint of the key itself,
	// and never comes from metadata.
	List(ctx context.Context) ([]Kept, error)

	// Create makes a new key for the KeyRing with the given UID.
	Create(ctx context.Context, ring types.UID, algorithm v1alpha1.Algorithm) (keyring.Key, error)

	// Open returns the private half of a key. It fails if there is no private half, or if the
	// private half belongs to another kid.
	Open(ctx context.Context, kid string) (crypto.Signer, error)

	// Delete destroys the private half of a key. It succeeds if there is no private half.
	Delete(ctx context.Context, kid string) error
}

// Kept describes a key whose private half is in a Store.
type Kept struct {
	// KID is the key's thumbprint.
	KID string
	// Ring is the UID of the KeyRing that the key was made for.
	Ring types.UID
	// CreatedAt is when the key was made, by the API server's clock.
	CreatedAt time.Time
}
