package source

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// Intervals of the collector. Once per collectEvery, it looks at the files of objects that stored a
// new artifact. Once per walkEvery, it looks through the whole store. Only this walk finds these
// files:
//   - files that a killed controller left
//   - files of objects that were deleted without a last reconciliation
const (
	collectEvery = time.Minute
	walkEvery    = time.Hour
)

// largestNamespaces is how many namespaces one log message of the collector names at most. The
// metric [namespaceSizes] has the same limit.
const largestNamespaces = 10

// Collector removes artifacts that are in no object's status. It is a runnable of a manager and
// runs in the replica that reconciles.
type Collector struct {
	// Artifacts has the artifacts of all kinds.
	Artifacts *Artifacts
	// Log gets a message after artifacts were removed, and after the store had no room for an
	// artifact.
	Log logr.Logger
}

// NeedLeaderElection makes the collector run in the replica that reconciles. No other replica knows
// which artifacts are being written.
func (*Collector) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (c *Collector) Start(ctx context.Context) error {
	ticker := time.NewTicker(collectEvery)
	defer ticker.Stop()
	var (
		walked  time.Time
		refused uint64
	)
	for {
		collect := c.Artifacts.collectChanged
		if time.Since(walked) >= walkEvery {
			walked, collect = time.Now(), c.Artifacts.Collect
		}
		done, err := collect(ctx)
		if err != nil && ctx.Err() == nil {
			c.Log.Error(err, "collect artifacts")
			walked = time.Time{} // begin again with the whole store
		}
		if done.Artifacts > 0 {
			c.Log.Info("removed artifacts that no object names", "artifacts", done.Artifacts, "bytes", done.Bytes)
		}
		if all := c.Artifacts.Store.Refused(); all > refused {
			c.Log.Info("the artifact store had no room for artifacts: raise --artifact-store-max-size, or have the largest namespaces delete sources",
				"refused", all-refused, "largest", c.Artifacts.Store.Largest(largestNamespaces))
			refused = all
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// live reports whether an object exists, and which digests are in its status or will soon be.
type live func(store.Object) (digests []string, exists bool)

// live reads from the cache which artifact each object has in its status. It returns a function
// that looks up an object's digests.
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
		// The cache may be behind: the newest artifact may be in a status that the cache has not
		// seen yet. So keep the last stored artifact too.
		if last, ok := a.verified.Load(o); ok {
			digests = append(digests, last.(string)) // all values are strings
		}
		return digests, exists
	}, err
}

// Collect looks through the whole store and removes artifacts that are in no object's status.
func (a *Artifacts) Collect(ctx context.Context) (store.Collected, error) {
	live, err := a.live(ctx)
	if err != nil {
		return store.Collected{}, err
	}
	done, err := a.Store.Collect(ctx, live)
	a.watch(done.Pending)
	// Objects that moved to another shard, or were deleted without a finalizer, never reach
	// Finalize: remove their entries here.
	a.verified.Range(func(o, _ any) bool {
		if _, exists := live(o.(store.Object)); !exists { // all keys are of type store.Object
			a.verified.Delete(o)
		}
		return true
	})
	return done, err
}

// collectChanged is like Collect, but looks only at these objects:
//   - objects that have stored something since the last call
//   - objects with an artifact that the last call kept, and that a later call may remove
//
// Such an artifact is too young, or a status still names it although a newer artifact is stored.
func (a *Artifacts) collectChanged(ctx context.Context) (store.Collected, error) {
	var changed []store.Object
	a.changed.Range(func(o, _ any) bool {
		changed = append(changed, o.(store.Object)) // all keys are of type store.Object
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
		// Delete o before the collection starts. If o stores something during the collection, Put
		// adds o again, and the next call looks at o.
		a.changed.Delete(o)
	}
	done, err := a.Store.CollectObjects(ctx, changed, live)
	a.watch(done.Pending)
	return done, err
}

// watch makes the collector look at the objects again soon.
func (a *Artifacts) watch(objects []store.Object) {
	for _, o := range objects {
		a.changed.Store(o, nil)
	}
}
