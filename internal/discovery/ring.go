package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/discovery/document"
)

// FollowRing keeps an issuer's documents as its KeyRing says. While the API server cannot be
// reached, the last documents stay: services that cannot read any documents would refuse all tokens.
// A ring that is deleted leaves the last documents too, for the same reason.
func FollowRing(ctx context.Context, informers cache.Informers, ring client.ObjectKey, i *Issuer, log *slog.Logger) error {
	informer, err := informers.GetInformer(ctx, &identityv1.KeyRing{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch KeyRing %s: %w", ring, err)
	}
	seen := func(object any) {
		current, ok := object.(*identityv1.KeyRing)
		if !ok || current.Name != ring.Name || current.Namespace != ring.Namespace {
			return
		}
		d, err := document.OfRing(i.url.String(), &current.Status)
		switch {
		case err == nil:
			i.Publish(d)
		case errors.Is(err, document.ErrNoKeys):
			log.Warn("the KeyRing has no keys for the issuer; the last documents stay", "ring", ring.String(), "issuer", i.url.String())
		default:
			log.Error("the KeyRing cannot be published; the last documents stay", "ring", ring.String(), "error", err)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) }})
	return err
}
