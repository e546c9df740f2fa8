package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// sharing returns a Shared that has its own artifacts in the world's store.
func (w *world) sharing(elected <-chan struct{}) *source.Shared {
	return &source.Shared{
		Shared:    &tenant.Shared{Shared: &object.Shared{Client: w.Kube}},
		Artifacts: &source.Artifacts{Store: w.Shared.Artifacts.Store, Elected: elected},
	}
}

// age sets the time at which a file of the store was written.
func (w *world) age(path string, then time.Time) {
	w.T.Helper()
	if err := os.Chtimes(filepath.Join(w.Dir, path), then, then); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) remains(path string) bool {
	_, err := os.Stat(filepath.Join(w.Dir, path))
	return err == nil
}

// leave writes a file beside an artifact. No status refers to the file.
func (w *world) leave(artifact string) (path string) {
	w.T.Helper()
	path = filepath.Join(filepath.Dir(artifact), strings.Repeat("0", 64)+".tar.gz")
	if err := os.WriteFile(filepath.Join(w.Dir, path), []byte("x"), 0o600); err != nil {
		w.T.Fatal(err)
	}
	return path
}

// One collector serves the objects of all kinds. It removes the files of kinds that are not
// registered.
func TestCollectorKnowsAllKinds(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	owner := func(kind string) store.Object {
		return store.Object{Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: string(o.UID)}
	}
	first := w.sharing(nil)
	source.New(first, named("One"), w.kind)
	// The object o belongs to both kinds, One and Another.
	source.New(first, named("Another"), w.kind)
	put := func(owner store.Object) *v1alpha1.Artifact {
		t.Helper()
		kept, err := first.Artifacts.Put(t.Context(), owner, nil, "v1", func(out io.Writer) error {
			_, err := io.WriteString(out, owner.Kind)
			return err
		})
		must.Succeed(t, err)
		w.age(kept.Path, time.Now().Add(-time.Hour))
		return kept
	}
	mine, theirs := put(owner("one")), put(owner("another"))
	if done, err := first.Artifacts.Collect(t.Context()); err != nil || done.Artifacts != 0 || !w.remains(mine.Path) || !w.remains(theirs.Path) {
		t.Errorf("removed %+v, %v", done, err)
	}

	// A kind that nobody registered has no objects, so its files are garbage.
	got := w.Get(o)
	got.Status.Artifact = mine
	must.Succeed(t, w.Kube.Status().Update(t.Context(), got))
	second := w.sharing(nil)
	source.New(second, named("One"), w.kind)
	if done, err := second.Artifacts.Collect(t.Context()); err != nil || done.Artifacts != 1 || !w.remains(mine.Path) || w.remains(theirs.Path) {
		t.Errorf("removed %+v, %v", done, err)
	}
}

// A replaced artifact is removed within minutes. Files of other objects are not looked at before an
// hour has passed.
func TestCollectorLooksAtWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		find := func(o *v1alpha1.OCIRepository, revision string) string {
			t.Helper()
			w.finds(revision)
			w.reconcile(o)
			path := w.Get(o).Status.Artifact.Path
			w.age(path, time.Now()) // the test's clock differs from the disk's
			return path
		}
		o, quiet := w.create("tenant-a", "app", nil), w.create("tenant-a", "quiet", nil)
		still := find(quiet, "v1")
		first := find(o, "v1")
		fresh := w.leave(first) // as left by a controller that was killed
		w.age(fresh, time.Now())
		w.Restart()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&source.Collector{Artifacts: w.Shared.Artifacts, Log: logr.Discard()}).Start(ctx) }()
		time.Sleep(5 * source.CollectEvery)
		if w.remains(fresh) || !w.remains(first) {
			t.Errorf("the fresh leftover remains %v, the artifact %v", w.remains(fresh), w.remains(first))
		}
		leftover := w.leave(still)
		w.age(leftover, time.Now().Add(-time.Hour))

		second := find(o, "v2")
		time.Sleep(source.CollectEvery / 2)
		if !w.remains(first) {
			t.Error("an artifact is gone that may be read in this moment")
		}
		time.Sleep(2 * source.CollectEvery)
		if w.remains(first) || !w.remains(second) || !w.remains(still) {
			t.Errorf("after the change: the first remains %v, the second %v, the other's %v", w.remains(first), w.remains(second), w.remains(still))
		}
		if !w.remains(leftover) {
			t.Error("the whole store was looked through within minutes")
		}
		time.Sleep(source.WalkEvery)
		if w.remains(leftover) || !w.remains(second) || !w.remains(still) {
			t.Errorf("after an hour: the leftover remains %v, artifacts %v and %v", w.remains(leftover), w.remains(second), w.remains(still))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// If the store has no room, the log and the metric name the namespaces that use most of the store.
// Each pass of the collector logs one message if artifacts were refused since the last pass.
func TestCollectorNamesWhoFillsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWith(t, store.Options{MaxBytes: 8000})
		put := func(namespace string, size int) error {
			_, err := w.Shared.Artifacts.Store.Put(t.Context(), store.Object{Kind: "bucket", Namespace: namespace, Name: "app", UID: "uid"},
				func(out io.Writer) error { _, err := out.Write(make([]byte, size)); return err })
			return err
		}
		must.Succeed(t, put("greedy", 1500))
		must.Succeed(t, put("modest", 100))
		var lines []string
		sink := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&source.Collector{Artifacts: w.Shared.Artifacts, Log: sink}).Start(ctx) }()
		time.Sleep(source.CollectEvery / 2)
		if err := put("third", 2000); !errors.Is(err, store.ErrShareFull) {
			t.Fatal(err)
		}
		if err := put("third", 2000); !errors.Is(err, store.ErrShareFull) {
			t.Fatal(err)
		}
		if len(lines) != 0 {
			t.Errorf("before the refusals: %q", lines)
		}
		sizes := source.NewNamespaceSizes(w.Shared.Artifacts.Store)
		if err := testutil.CollectAndCompare(sizes, strings.NewReader(`
# HELP lanyard_artifact_store_namespace_bytes Bytes of a namespace's artifacts, with the room to replace the largest; only the ten largest namespaces.
# TYPE lanyard_artifact_store_namespace_bytes gauge
lanyard_artifact_store_namespace_bytes{namespace="greedy"} 3000
lanyard_artifact_store_namespace_bytes{namespace="modest"} 200
`)); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * source.CollectEvery)
		stop()
		must.Succeed(t, <-ended)
		full := slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "no room") })
		if len(full) != 1 || !strings.Contains(full[0], `"refused"=2`) || !strings.Contains(full[0], "greedy") ||
			strings.Index(full[0], "greedy") > strings.Index(full[0], "modest") {
			t.Errorf("log %q", lines)
		}
	})
}

// The metric of the namespaces' sizes has at most ten series, however many namespaces have
// artifacts.
func TestNamespaceSizesAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		_, err := w.Shared.Artifacts.Store.Put(t.Context(), store.Object{Kind: "bucket", Namespace: fmt.Sprint("ns", i), Name: "app", UID: "uid"},
			func(out io.Writer) error { _, err := out.Write(make([]byte, 1)); return err })
		must.Succeed(t, err)
	}
	if got := testutil.CollectAndCount(source.NewNamespaceSizes(w.Shared.Artifacts.Store)); got != 10 {
		t.Errorf("%d series", got)
	}
}

// The cache may not have seen a status that was just written. The artifact of that status must not
// be removed.
func TestCollectorKeepsWhatMemoryHasNotHeardOf(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	before := w.Get(o)
	w.finds("v2")
	w.reconcile(o)
	now := w.Get(o)
	for _, path := range []string{before.Status.Artifact.Path, now.Status.Artifact.Path} {
		w.age(path, time.Now().Add(-time.Hour))
	}
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.(*v1alpha1.OCIRepositoryList).Items = []v1alpha1.OCIRepository{*before}
			return nil
		},
	})
	if _, err := w.Shared.Artifacts.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !w.remains(now.Status.Artifact.Path) || !w.remains(before.Status.Artifact.Path) {
		t.Error("an artifact that a status names is gone")
	}

	// If the cache does not have an object, the object's files and its entry in Artifacts are
	// removed.
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	if _, err := w.Shared.Artifacts.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.Shared.Artifacts.Store.Size() != 0 {
		t.Error("something is left of an object of another shard")
	}
}

// If the objects cannot be listed, nothing is garbage.
func TestCollectorNeedsToKnowAllObjects(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.age(w.Get(o).Status.Artifact.Path, time.Now().Add(-time.Hour))
	w.Restart()
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("starting")
		},
	})
	if _, err := w.Shared.Artifacts.Collect(t.Context()); err == nil || !w.remains(w.Get(o).Status.Artifact.Path) {
		t.Errorf("%v", err)
	}
}

// A process may be killed after it wrote the store and before it wrote the status. Then no status
// refers to the written file, and the collector removes this file.
func TestLeftoversAreCollected(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	current := w.Get(o).Status.Artifact.Path
	leftover, old := w.leave(current), time.Now().Add(-time.Hour)
	w.age(leftover, old)
	w.age(current, old)
	if _, err := w.Shared.Artifacts.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.remains(leftover) || !w.remains(current) {
		t.Errorf("the leftover remains %v, the artifact %v", w.remains(leftover), w.remains(current))
	}
}
