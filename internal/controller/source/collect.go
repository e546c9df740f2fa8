package source

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// How often the collector looks for garbage: among the artifacts of objects that stored a new one,
// and in the whole store. Only the whole store shows the files of a killed controller, and of
// objects that were deleted without a last reconciliation.
const (
	collectEvery = time.Minute
	walkEvery    = time.Hour
)

// Collector removes artifacts that no object names any more. It is a runnable of a manager and runs
// where the objects are reconciled.
type Collector struct {
	// Artifacts are those of all kinds.
	Artifacts *Artifacts
	// Log hears what was removed.
	Log logr.Logger
}

// NeedLeaderElection makes the collector run in the replica that reconciles: no other replica knows
// which artifacts are being written.
func (*Collector) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (c *Collector) Start(ctx context.Context) error {
	ticker := time.NewTicker(collectEvery)
	defer ticker.Stop()
	var walked time.Time
	for {
		collect := c.Artifacts.collectChanged
		if time.Since(walked) >= walkEvery {
			walked, collect = time.Now(), c.Artifacts.Collect
		}
		done, err := collect(ctx)
		if err != nil && ctx.Err() == nil {
			c.Log.Error(err, "collect artifacts")
			walked = time.Time{} // begin anew with the whole store
		}
		if done.Artifacts > 0 {
			c.Log.Info("removed artifacts that no object names", "artifacts", done.Artifacts, "bytes", done.Bytes)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// live tells for each object that exists which digests its status names, or is about to name.
type live func(store.Object) (digests []string, exists bool)

// live reads the claims of all objects.
func (a *Artifacts) live(ctx context.Context) (live, error) {
	named := map[store.Object][]string{}
	err := a.claims(ctx, func(c claim) {
		named[c.owner] = nil
		if c.digest != "" {
			named[c.owner] = []string{c.digest}
		}
	})
	return func(o store.Object) ([]string, bool) {
		digests, exists := named[o]
		// The cache may be behind: the newest artifact may be named in a status that the cache has
		// not yet seen.
		if last, ok := a.verified.Load(o); ok {
			digests = append(digests, last.(string)) // nothing else is put there
		}
		return digests, exists
	}, err
}

// Collect looks through the whole store and removes artifacts that no object names any more.
func (a *Artifacts) Collect(ctx context.Context) (store.Collected, error) {
	live, err := a.live(ctx)
	if err != nil {
		return store.Collected{}, err
	}
	done, err := a.Store.Collect(ctx, live)
	a.watch(done.Pending)
	// An object that went to another shard, or without its finalizer, is not reconciled a last
	// time.
	a.verified.Range(func(o, _ any) bool {
		if _, exists := live(o.(store.Object)); !exists { // nothing else is put there
			a.verified.Delete(o)
		}
		return true
	})
	return done, err
}

// collectChanged is Collect for the objects that have stored something since, and for those with
// artifacts that were too young to be removed, or that a status still names beside newer artifacts.
func (a *Artifacts) collectChanged(ctx context.Context) (store.Collected, error) {
	var changed []store.Object
	a.changed.Range(func(o, _ any) bool {
		changed = append(changed, o.(store.Object)) // nothing else is put there
		return true
	})
	if len(changed) == 0 {
		return store.Collected{}, nil
	}
	live, err := a.live(ctx)
	if err != nil {
		return store.Collected{}, err
	}
	for _, o := range changed {
		a.changed.Delete(o) // before, so that what is stored meanwhile is not forgotten
	}
	done, err := a.Store.CollectObjects(ctx, changed, live)
	a.watch(done.Pending)
	return done, err
}

// watch has the objects looked at again soon.
func (a *Artifacts) watch(objects []store.Object) {
	for _, o := range objects {
		a.changed.Store(o, nil)
	}
}
