package sign

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// Object reads and writes the KeyRing, which has the public side of the keys.
type Object struct {
	// Client reads from the API server, never from a cache. A signer computes the age of its view
	// from the time of its request, so a cached ring would seem too new.
	Client client.Client
	// Namespace is the release's namespace.
	Namespace string
	// Name is the ring's name, such as keyring.IssuerRing.
	Name string
}

func (o Object) read(ctx context.Context) (*v1alpha1.KeyRing, error) {
	var ring v1alpha1.KeyRing
	if err := o.Client.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, &ring); err != nil {
		return nil, fmt.Errorf("read KeyRing %s/%s: %w", o.Namespace, o.Name, err)
	}
	return &ring, nil
}

// readOrCreate reads the ring, and creates an empty ring if there is none. If two processes create
// the ring at once, both get the same ring.
func (o Object) readOrCreate(ctx context.Context) (*v1alpha1.KeyRing, error) {
	ring, err := o.read(ctx)
	if !apierrors.IsNotFound(err) {
		return ring, err
	}
	ring = &v1alpha1.KeyRing{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	if err := o.Client.Create(ctx, ring); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create KeyRing %s/%s: %w", o.Namespace, o.Name, err)
	}
	return o.read(ctx)
}

// write replaces the status. It fails with a conflict if the object has changed since it was
// read.
func (o Object) write(ctx context.Context, ring *v1alpha1.KeyRing, status v1alpha1.KeyRingStatus) error {
	changed := ring.DeepCopy()
	changed.Status = status
	if err := o.Client.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("write status of KeyRing %s/%s: %w", o.Namespace, o.Name, err)
	}
	return nil
}
