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
	// Reconciler knows the objects, and what it has stored for them; its store is looked through.
	Reconciler *Reconciler
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
	r := c.Reconciler
	list := &v1alpha1.OCIRepositoryList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	digests := make(map[store.Object][]string, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		digests[owner(o)] = nil
		if o.Status.Artifact != nil {
			digests[owner(o)] = []string{o.Status.Artifact.Digest}
		}
	}
	done, err := r.Store.Collect(ctx, func(o store.Object) ([]string, bool) {
		current, exists := digests[o]
		// Memory may be behind: what was stored last may stand in a status that it has not heard of.
		if last, ok := r.verified.Load(o); ok {
			current = append(current, last.(string)) //nolint:forcetypeassert // nothing else is put there
		}
		return current, exists
	}, store.Retention{})
	// An object that went to another shard, or without its finalizer, is not reconciled a last time.
	r.verified.Range(func(o, _ any) bool {
		if _, exists := digests[o.(store.Object)]; !exists { //nolint:forcetypeassert // nothing else is put there
			r.verified.Delete(o)
		}
		return true
	})
	if done.Artifacts > 0 {
		c.Log.Info("removed artifacts that no object names", "artifacts", done.Artifacts, "bytes", done.Bytes)
	}
	return err
}
