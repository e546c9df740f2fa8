package source

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

// collectEvery is how often the store is looked through.
const collectEvery = time.Minute

// Collector removes artifacts that no object names any more. It is a runnable of a manager and runs where the objects are
// reconciled.
type Collector struct {
	// Artifacts are those of all kinds.
	Artifacts *Artifacts
	// Log hears what was removed.
	Log logr.Logger
}

// NeedLeaderElection makes the collector run where the reconcilers do: no other replica knows what is being written.
func (*Collector) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (c *Collector) Start(ctx context.Context) error {
	ticker := time.NewTicker(collectEvery)
	defer ticker.Stop()
	for {
		done, err := c.Artifacts.Collect(ctx)
		if err != nil && ctx.Err() == nil {
			c.Log.Error(err, "collect artifacts")
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
