package source

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// readyWithin is how long a replica that reconciles waits for missing artifacts. Tenants choose what they fetch from and timeouts, and
// none of them may keep the others' artifacts from being served.
const readyWithin = 5 * time.Minute

// readiness knows which objects were tried since the start.
type readiness struct {
	mu    sync.Mutex // guards all; never held during I/O
	tried map[store.Object]struct{}
	since time.Time // of the first check on a replica that reconciles; zero until then
	done  bool
}

// asked reports whether the replica is done, or has waited long enough.
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

// finish ends the wait for good. The caller holds mu.
func (r *readiness) finish() { r.done, r.tried = true, nil }

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

// try remembers that an object's artifact was fetched, or could not be.
func (a *Artifacts) try(owner store.Object) { a.readiness.try(owner) }

// Ready is a readiness check (healthz.Checker): it fails while an artifact that a status names is missing from the store and
// its object was not tried since the start, so that clients are not sent to a replica which lost its volume. An object whose
// artifact cannot be fetched any more, or that is suspended, does not hold up the others; one whose registry is slow does so for
// readyWithin at most. Once it has passed on the replica that reconciles, it always does.
func (a *Artifacts) Ready(req *http.Request) error {
	elected := false
	select {
	case <-a.Elected:
		elected = true
	default: // another replica reconciles; what it fetches may be missing here
	}
	if a.readiness.asked(elected) {
		return nil
	}
	var wanted []claim
	err := a.claims(req.Context(), func(c claim) {
		if c.digest != "" && !c.idle {
			wanted = append(wanted, c)
		}
	})
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
