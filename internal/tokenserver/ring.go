package tokenserver

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// FollowRing sends a value to each channel after a change of a KeyRing. It does not wait for
// receivers, so each channel needs a buffer for one value. A busy receiver gets the value
// later.
//
// The values do not contain the ring, because the informer's copy may be outdated. Receivers read
// the ring from the API server.
func FollowRing(ctx context.Context, informers cache.Informers, ring client.ObjectKey, channels ...chan<- struct{}) error {
	informer, err := informers.GetInformer(ctx, &identityv1.KeyRing{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch KeyRing %s: %w", ring, err)
	}
	changed := func(object any) {
		seen, ok := object.(*identityv1.KeyRing)
		if !ok || client.ObjectKeyFromObject(seen) != ring {
			return
		}
		for _, c := range channels {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) },
	})
	return err
}
