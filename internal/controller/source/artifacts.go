package source

import (
	"context"
	"io"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// Artifacts are the artifact store as the sources of all kinds use it, and who has something in it. One is shared by all
// reconcilers of a controller: only who knows the objects of all kinds can tell what is garbage. Fields that are exported are
// required.
type Artifacts struct {
	// Store keeps the files.
	Store *store.Store
	// BaseURL is what the paths of artifacts' URLs are appended to, without a slash at its end.
	BaseURL string
	// Elected is closed when this replica begins to reconcile.
	Elected <-chan struct{}

	kinds     []claimer // of all reconcilers; fixed before the manager starts
	verified  sync.Map  // store.Object -> digest that was found whole since the start
	readiness readiness
}

// claim is an object's claim to an artifact.
type claim struct {
	owner  store.Object
	digest string // in its status; empty for none
	idle   bool   // nobody will fetch it: the object is suspended, or being deleted
}

// claimer knows the claims of one kind's objects, from memory.
type claimer interface {
	claims(ctx context.Context, show func(claim)) error
}

func (a *Artifacts) register(c claimer) { a.kinds = append(a.kinds, c) }

// claims implements claimer.
func (r *Reconciler[O, P]) claims(ctx context.Context, show func(claim)) error {
	return r.each(ctx, func(o O) {
		view := r.kind.View(o)
		c := claim{owner: r.owner(o), idle: view.Suspend || !o.GetDeletionTimestamp().IsZero()}
		if view.Artifact != nil {
			c.digest = view.Artifact.Digest
		}
		show(c)
	})
}

func (a *Artifacts) claims(ctx context.Context, show func(claim)) error {
	for _, kind := range a.kinds {
		if err := kind.claims(ctx, show); err != nil {
			return err
		}
	}
	return nil
}

// Put stores what write writes and describes it as an artifact of that revision. old is the one in the status, nil for none:
// content that stays the same keeps its time. An error of write is returned as it is.
func (a *Artifacts) Put(
	ctx context.Context, owner store.Object, old *v1alpha1.Artifact, revision string, write func(io.Writer) error,
) (*v1alpha1.Artifact, error) {
	var source error
	kept, err := a.Store.Put(ctx, owner, func(w io.Writer) error {
		source = write(w)
		return source
	})
	if err != nil {
		if source == nil {
			err = &storeError{err}
		}
		return nil, err
	}
	a.verified.Store(owner, kept.Digest)
	artifact := &v1alpha1.Artifact{
		Path: kept.Path, Revision: revision, Digest: kept.Digest, Size: kept.Size,
		LastUpdateTime: metav1.NewTime(kept.Time.Truncate(time.Second)),
	}
	if old != nil && old.Digest == kept.Digest {
		artifact.LastUpdateTime = old.LastUpdateTime
	}
	return a.Renew(owner, artifact)
}

// Annotate keeps beside the artifact what the kind must remember of it; see store.Annotate. An error of write is returned as it is.
func (a *Artifacts) Annotate(ctx context.Context, owner store.Object, artifact *v1alpha1.Artifact, write func(io.Writer) error) error {
	var source error
	err := a.Store.Annotate(ctx, owner, artifact.Digest, func(w io.Writer) error {
		source = write(w)
		return source
	})
	if err != nil && source == nil {
		return &storeError{err}
	}
	return err
}

// Renew is the artifact with the URL that it has today, which changes with the store's key and the controller's address.
func (a *Artifacts) Renew(owner store.Object, artifact *v1alpha1.Artifact) (*v1alpha1.Artifact, error) {
	path, err := a.Store.URLPath(owner, artifact.Digest)
	if err != nil {
		return nil, &storeError{err}
	}
	renewed := artifact.DeepCopy()
	renewed.URL = a.BaseURL + path
	return renewed, nil
}

// stored reports whether the artifact is in the store; none is not. Its content is read once per start and content: a disk that
// has lost it in between is found at the next start.
func (a *Artifacts) stored(ctx context.Context, owner store.Object, artifact *v1alpha1.Artifact) bool {
	if artifact == nil {
		return false
	}
	if seen, ok := a.verified.Load(owner); ok && seen == artifact.Digest {
		return a.Store.Has(owner, artifact.Digest)
	}
	if err := a.Store.Verify(ctx, owner, artifact.Digest); err != nil {
		log.FromContext(ctx).Info("the artifact in the status is not in the store", "digest", artifact.Digest, "cause", err.Error())
		return false
	}
	a.verified.Store(owner, artifact.Digest)
	return true
}

// remove removes what is kept for an object that goes.
func (a *Artifacts) remove(owner store.Object) error {
	if err := a.Store.Remove(owner); err != nil {
		return err
	}
	a.verified.Delete(owner)
	return nil
}

// Collect removes artifacts that no object names any more.
func (a *Artifacts) Collect(ctx context.Context) (store.Collected, error) {
	digests := map[store.Object][]string{}
	err := a.claims(ctx, func(c claim) {
		digests[c.owner] = nil
		if c.digest != "" {
			digests[c.owner] = []string{c.digest}
		}
	})
	if err != nil {
		return store.Collected{}, err
	}
	done, err := a.Store.Collect(ctx, func(o store.Object) ([]string, bool) {
		current, exists := digests[o]
		// Memory may be behind: what was stored last may stand in a status that it has not heard of.
		if last, ok := a.verified.Load(o); ok {
			current = append(current, last.(string)) //nolint:forcetypeassert // nothing else is put there
		}
		return current, exists
	}, store.Retention{})
	// An object that went to another shard, or without its finalizer, is not reconciled a last time.
	a.verified.Range(func(o, _ any) bool {
		if _, exists := digests[o.(store.Object)]; !exists { //nolint:forcetypeassert // nothing else is put there
			a.verified.Delete(o)
		}
		return true
	})
	return done, err
}
