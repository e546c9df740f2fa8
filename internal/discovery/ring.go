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

// FollowRing keeps an issuer's documents as its KeyRing says. While the API server cannot be
// reached, the last documents stay: services that cannot read any documents would refuse all
// tokens. A ring without keys for the issuer, or none at all, withdraws the documents: otherwise a
// revoked key would be trusted for ever.
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
			log.Warn("the KeyRing has no documents for the issuer, so none are served", "ring", ring.String(), "issuer", i.url.String(), "error", err)
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
