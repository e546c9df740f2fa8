package discovery

import (
	"context"
	"fmt"
	"log/slog"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/discovery/document"
)

// FollowRing watches a KeyRing, and publishes the issuer's documents when the ring changes. While
// the API server cannot be reached, the last documents are still served. Without documents,
// services would refuse all tokens. If the ring is deleted or has no keys for the issuer,
// FollowRing withdraws the documents. Otherwise services would trust a revoked key for ever.
func FollowRing(ctx context.Context, informers cache.Informers, ring client.ObjectKey, i *Issuer, log *slog.Logger) error {
	informer, err := informers.GetInformer(ctx, &identityv1.KeyRing{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch KeyRing %s: %w", ring, err)
	}
	seen := func(object any) {
		current, ok := object.(*identityv1.KeyRing)
		if !ok || client.ObjectKeyFromObject(current) != ring {
			return
		}
		d, err := document.OfRing(i.url.String(), &current.Status)
		if err != nil {
			log.Warn("the KeyRing has no documents for the issuer, so none are served",
				"ring", ring.String(), "issuer", i.url.String(), "error", err)
			d = nil
		}
		i.Publish(d)
	}
	deleted := func(object any) {
		name, err := toolscache.DeletionHandlingObjectToName(object)
		if err != nil || name.Namespace != ring.Namespace || name.Name != ring.Name {
			return
		}
		log.Warn("the KeyRing was deleted, so no documents are served", "ring", ring.String(), "issuer", i.url.String())
		i.Publish(nil)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) }, DeleteFunc: deleted,
	})
	return err
}
