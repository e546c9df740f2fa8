package ocirepository

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// readyWithin is how long a replica that reconciles waits for missing artifacts. Tenants choose their registries and timeouts, and
// none of them may keep the others' artifacts from being served.
const readyWithin = 5 * time.Minute

// readiness knows which objects were tried since the start.
type readiness struct {
	mu    sync.Mutex // guards all; never held during I/O
	tried map[types.UID]struct{}
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

func (r *readiness) try(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	if r.tried == nil {
		r.tried = map[types.UID]struct{}{}
	}
	r.tried[uid] = struct{}{}
}

// Ready is a readiness check (healthz.Checker): it fails while an artifact that a status names is missing from the store and
// its object was not tried since the start, so that clients are not sent to a replica which lost its volume. An object whose
// artifact cannot be fetched any more, or that is suspended, does not hold up the others; one whose registry is slow does so for
// readyWithin at most. Once it has passed on the replica that reconciles, it always does.
func (r *Reconciler) Ready(req *http.Request) error {
	elected := false
	select {
	case <-r.Elected:
		elected = true
	default: // another replica reconciles; what it fetches may be missing here
	}
	if r.readiness.asked(elected) {
		return nil
	}
	list := &v1alpha1.OCIRepositoryList{}
	if err := r.Client.List(req.Context(), list, client.UnsafeDisableDeepCopy); err != nil {
		return errors.New("the objects are not known yet")
	}
	missing := 0
	r.readiness.mu.Lock()
	defer r.readiness.mu.Unlock()
	for i := range list.Items {
		o := &list.Items[i]
		if _, tried := r.readiness.tried[o.UID]; tried || o.Status.Artifact == nil || o.Spec.Suspend || !o.DeletionTimestamp.IsZero() {
			continue
		}
		if !r.Store.Has(owner(o), o.Status.Artifact.Digest) {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d artifacts are missing from the store and yet to be fetched again", missing)
	}
	if elected {
		r.readiness.finish()
	}
	return nil
}
