package ocirepository

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// readiness knows which objects were tried since the start.
type readiness struct {
	mu    sync.Mutex // guards all; never held during I/O
	tried map[types.UID]struct{}
	done  bool
}

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
// artifact cannot be fetched any more, or that is suspended, does not hold up the others. Once it has passed on the replica
// that reconciles, it always does.
func (r *Reconciler) Ready(req *http.Request) error {
	r.readiness.mu.Lock()
	done := r.readiness.done
	r.readiness.mu.Unlock()
	if done {
		return nil
	}
	list := &v1alpha1.OCIRepositoryList{}
	if err := r.Client.List(req.Context(), list); err != nil {
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
	select {
	case <-r.Elected:
		r.readiness.done, r.readiness.tried = true, nil
	default: // another replica reconciles; what it fetches may be missing here
	}
	return nil
}
