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

// Artifacts is the artifact store for the sources of all kinds. All reconcilers of a controller
// share one Artifacts, because finding garbage needs the objects of all kinds. All exported fields
// are required.
type Artifacts struct {
	// Store keeps the files.
	Store *store.Store
	// BaseURL is the start of the artifacts' URLs, without a slash at its end.
	BaseURL string
	// Elected is closed when this replica begins to reconcile.
	Elected <-chan struct{}

	// kinds has one function per kind, which reads the claims of its objects. It does not change
	// after the manager starts.
	kinds []func(ctx context.Context, show func(claim)) error
	// verified maps a store.Object to the digest that was stored or verified since the start.
	verified sync.Map
	// changed has the objects whose files the collector must look at. Such an object has a newly
	// stored artifact, or garbage that could not be removed yet. The keys are of type store.Object,
	// and the values are nil.
	changed   sync.Map
	readiness readiness
}

// claim says which artifact in the store an object has in its status.
type claim struct {
	owner  store.Object
	digest string // digest of the artifact; empty if the status has no artifact
	idle   bool   // the artifact will not be fetched again: the object is suspended, being deleted or too large
}

// claims reads the objects of all kinds from the cache. For each object, it calls the function show
// with the object's [claim].
func (a *Artifacts) claims(ctx context.Context, show func(claim)) error {
	for _, claims := range a.kinds {
		if err := claims(ctx, show); err != nil {
			return err
		}
	}
	return nil
}

// Put stores the output of write, and describes it as an artifact of the given revision. The old
// artifact is the one in the status; nil if there is none. If the content has not changed, the
// artifact keeps its LastUpdateTime. An error from write is returned unchanged.
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
	a.changed.Store(owner, nil)
	artifact := &v1alpha1.Artifact{
		Path: kept.Path, Revision: revision, Digest: kept.Digest, Size: kept.Size,
		LastUpdateTime: metav1.NewTime(kept.Time.Truncate(time.Second)),
	}
	if old != nil && old.Digest == kept.Digest {
		artifact.LastUpdateTime = old.LastUpdateTime
	}
	return a.Renew(owner, artifact)
}

// Annotate stores a note beside the artifact in the store; see [store.Store.Annotate]. An error
// from write is returned unchanged.
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

// Renew returns a copy of the artifact with its present URL, which depends on the store's key and
// the controller's address.
func (a *Artifacts) Renew(owner store.Object, artifact *v1alpha1.Artifact) (*v1alpha1.Artifact, error) {
	path, err := a.Store.URLPath(owner, artifact.Digest)
	if err != nil {
		return nil, &storeError{err}
	}
	renewed := artifact.DeepCopy()
	renewed.URL = a.BaseURL + path
	return renewed, nil
}

// stored reports whether the artifact is in the store; false if artifact is nil. The content is
// verified once per digest after each start. Later only the file's existence is checked.
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

// remove removes the files of an object that is being deleted.
func (a *Artifacts) remove(owner store.Object) error {
	if err := a.Store.Remove(owner); err != nil {
		return &storeError{err}
	}
	a.verified.Delete(owner)
	a.changed.Delete(owner)
	return nil
}
