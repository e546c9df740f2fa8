package source_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func (w *world) isReady() error {
	return w.Shared.Artifacts.Ready(httptest.NewRequest(http.MethodGet, "/readyz", nil))
}

// A tenant's slow registry must not prevent the serving of other tenants' artifacts.
func TestReadyDoesNotWaitForEver(t *testing.T) {
	w := newWorld(t)
	w.create("tenant-a", "lost", func(o *v1alpha1.OCIRepository) {
		o.Status.Artifact = &v1alpha1.Artifact{Digest: "sha256:" + strings.Repeat("0", 64)}
	})
	synctest.Test(t, func(t *testing.T) {
		elected := make(chan struct{})
		late := w.sharing(elected)
		source.New(late, kinds.OCIRepository(), w.kind)
		check := func() error {
			return late.Artifacts.Ready(httptest.NewRequest(http.MethodGet, "/readyz", nil))
		}
		// On a replica that does not reconcile, the check fails as long as an artifact is missing,
		// even after ReadyWithin.
		for range 2 {
			if check() == nil {
				t.Fatal("a standby that lacks an artifact is ready")
			}
			time.Sleep(2 * source.ReadyWithin)
		}
		close(elected)
		if check() == nil {
			t.Error("ready before anything was tried")
		}
		time.Sleep(source.ReadyWithin + time.Second)
		if err := check(); err != nil {
			t.Errorf("not ready after %s: %v", source.ReadyWithin, err)
		}
	})
}

func TestReadyOfAReplica(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.Restart()
	if err := w.isReady(); err != nil {
		t.Errorf("a standby that has everything: %v", err)
	}
	must.Succeed(t, os.Remove(filepath.Join(w.Dir, w.Get(o).Status.Artifact.Path)))
	if err := w.isReady(); err == nil {
		t.Error("a standby that lacks an artifact is ready")
	}

	// An object whose fetch fails does not make the check fail, and neither does a suspended
	// object.
	close(w.Elected)
	w.fails(errOdd)
	w.reconcile(o)
	if err := w.isReady(); err != nil {
		t.Errorf("tried, and still not ready: %v", err)
	}
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
	w.Restart()
	if err := w.isReady(); err != nil {
		t.Errorf("a suspended object holds it up: %v", err)
	}
}

// A controller that lost its volume is not ready until it has fetched the artifacts again. It
// detects a damaged file at its next start.
func TestLostArtifactsAreFetchedAgain(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	current := filepath.Join(w.Dir, w.Get(o).Status.Artifact.Path)
	close(w.Elected)
	must.Succeed(t, os.Remove(current))
	w.Restart()
	if err := w.isReady(); err == nil || !strings.Contains(err.Error(), "1 artifacts are missing") {
		t.Errorf("ready without the artifact: %v", err)
	}
	last := func() source.Call { return w.kind.calls[len(w.kind.calls)-1] }
	if w.reconcile(o); last().Stored {
		t.Error("the kind was told that the artifact is in the store")
	}
	if err := w.isReady(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if w.reconcile(o); !last().Stored {
		t.Error("the kind was not told that the artifact is in the store")
	}
	must.Succeed(t, os.WriteFile(current, []byte("damaged"), 0o600))
	w.Restart()
	if w.reconcile(o); last().Stored {
		t.Error("the kind was told that the damaged artifact is whole")
	}
	if err := w.Shared.Artifacts.Store.Verify(t.Context(), controllertest.Owner(o), w.Get(o).Status.Artifact.Digest); err != nil {
		t.Error(err)
	}
}

// Ready must return soon after the cache has the objects. A read that waits for the cache checks it
// only every 100 ms. Ready must not wait that long.
func TestReadyAsSoonAsTheObjectsAreKnown(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
			List: func(ctx context.Context, kube client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				for time.Since(began) < 20*time.Millisecond {
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return kube.List(ctx, list, opts...)
			},
		})
		must.Succeed(t, w.isReady())
		if took := time.Since(began); took > 30*time.Millisecond {
			t.Errorf("ready after %s", took)
		}
	})
}
