package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// readyWithin is how long a replica that reconciles waits for missing artifacts. During the wait,
// clients are kept away from the replica. Tenants choose servers and timeouts, so a tenant could
// prolong the wait. The limit keeps the tenant from blocking the artifacts of other tenants.
const readyWithin = 5 * time.Minute

// readiness records for which objects a fetch was tried since the controller started.
type readiness struct {
	mu    sync.Mutex // guards all; never held during I/O
	tried map[store.Object]struct{}
	since time.Time // time of the first check after this replica was elected; zero before that
	done  bool
}

// asked is called by each readiness check. If it returns true, the check passes at once, and need
// not look for missing artifacts. asked returns true only on the elected replica, which reconciles,
// and only in two cases:
//   - an earlier check found no missing artifact
//   - the first check was more than readyWithin ago
//
// In both cases, checks before the election do not count.
func (r *readiness) asked(elected bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if elected && r.since.IsZero() {
		r.since = time.Now()
	}
	if elected && time.Since(r.since) > readyWithin {
		r.finish()
	}
	return r.done
}

// finish makes all later checks pass. The caller holds mu.
func (r *readiness) finish() { r.done, r.tried = true, nil }

// try records that an object's artifact was fetched, or that a fetch was tried and failed.
func (r *readiness) try(owner store.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	if r.tried == nil {
		r.tried = map[store.Object]struct{}{}
	}
	r.tried[owner] = struct{}{}
}

// Ready is a readiness check (healthz.Checker). It keeps clients away from a replica that lost its
// volume. It fails while an artifact that the status of an object names is missing from the store.
// It ignores these objects:
//   - objects that are suspended or being deleted
//   - objects whose artifact was fetched, or could not be fetched, since the start
//
// Only one replica reconciles, and fetches what is missing. There the check fails for at most
// readyWithin, even if registries are slow. After it has passed once on this replica, it always
// passes. On other replicas, the check fails as long as an artifact is missing.
func (a *Artifacts) Ready(req *http.Request) error {
	elected := false
	select {
	case <-a.Elected:
		elected = true
	// Another replica reconciles. This replica may lack the artifacts that the other one fetches.
	// While an artifact is missing, the check fails here, even after readyWithin.
	default:
	}
	if a.readiness.asked(elected) {
		return nil
	}
	wanted, err := a.wanted(req.Context())
	if err != nil {
		return errors.New("the objects are not known yet")
	}
	missing := 0
	a.readiness.mu.Lock()
	defer a.readiness.mu.Unlock()
	for _, c := range wanted {
		if _, tried := a.readiness.tried[c.owner]; !tried && !a.Store.Has(c.owner, c.digest) {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d artifacts are missing from the store and yet to be fetched again", missing)
	}
	if elected {
		a.readiness.finish()
	}
	return nil
}

// knownPause is the pause between attempts to read the objects. A read that waits for the manager's
// cache looks only every 100 ms. That is too long for a controller that starts in about 200 ms.
const knownPause = 5 * time.Millisecond

// wanted returns a [claim] for each artifact that the status of an object names. It leaves out
// objects that are suspended or being deleted. It waits until the cache has the objects, or ctx
// ends.
func (a *Artifacts) wanted(ctx context.Context) ([]claim, error) {
	for {
		var wanted []claim
		attempt, cancel := context.WithTimeout(ctx, knownPause)
		err := a.claims(attempt, func(c claim) {
			if c.digest != "" && !c.idle {
				wanted = append(wanted, c)
			}
		})
		again := err != nil && attempt.Err() != nil && ctx.Err() == nil
		cancel()
		if !again {
			return wanted, err
		}
	}
}
