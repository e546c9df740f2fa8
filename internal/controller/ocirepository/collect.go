package ocirepository

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// collectEvery is how often the store is looked through.
const collectEvery = time.Minute

// Collector removes artifacts that no object names any more. It is a runnable of a manager and runs where the objects are
// reconciled.
type Collector struct {
	// Client reads the objects from memory.
	Client client.Reader
	// Store is what is looked through.
	Store *store.Store
	// Log hears what was removed.
	Log logr.Logger
}

// NeedLeaderElection makes the collector run where the reconciler does: no other replica knows what is being written.
func (*Collector) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (c *Collector) Start(ctx context.Context) error {
	ticker := time.NewTicker(collectEvery)
	defer ticker.Stop()
	for {
		if err := c.collect(ctx); err != nil && ctx.Err() == nil {
			c.Log.Error(err, "collect artifacts")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (c *Collector) collect(ctx context.Context) error {
	list := &v1alpha1.OCIRepositoryList{}
	if err := c.Client.List(ctx, list); err != nil {
		return err
	}
	digests := make(map[store.Object]string, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		digests[owner(o)] = ""
		if o.Status.Artifact != nil {
			digests[owner(o)] = o.Status.Artifact.Digest
		}
	}
	done, err := c.Store.Collect(ctx, func(o store.Object) (string, bool) {
		digest, exists := digests[o]
		return digest, exists
	}, store.Retention{})
	if done.Artifacts > 0 {
		c.Log.Info("removed artifacts that no object names", "artifacts", done.Artifacts, "bytes", done.Bytes)
	}
	return err
}
