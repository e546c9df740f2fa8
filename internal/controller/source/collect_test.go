package source

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// One collector knows the objects of all kinds: what it does not know is garbage.
func TestCollectorKnowsAllKinds(t *testing.T) {
	dir := t.TempDir()
	files, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	first := &Shared{Client: w.kube, Artifacts: &Artifacts{Store: files}}
	one := New(first, "One", w.kind)
	another := New(first, "Another", w.kind) // of the same objects, which is all that the test needs
	put := func(owner store.Object) *v1alpha1.Artifact {
		t.Helper()
		kept, err := first.Artifacts.Put(t.Context(), owner, nil, "v1", func(out io.Writer) error {
			_, err := io.WriteString(out, owner.Kind)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, kept.Path), old, old); err != nil {
			t.Fatal(err)
		}
		return kept
	}
	mine, theirs := put(one.owner(o)), put(another.owner(o))
	remains := func(a *v1alpha1.Artifact) bool { _, err := os.Stat(filepath.Join(dir, a.Path)); return err == nil }
	if done, err := first.Artifacts.Collect(t.Context()); err != nil || done.Artifacts != 0 || !remains(mine) || !remains(theirs) {
		t.Errorf("removed %+v, %v", done, err)
	}

	// A kind that nobody registered has no objects.
	second := &Shared{Client: w.kube, Artifacts: &Artifacts{Store: files}}
	one = New(second, "One", w.kind)
	second.Artifacts.verified.Store(one.owner(o), mine.Digest)
	if done, err := second.Artifacts.Collect(t.Context()); err != nil || done.Artifacts != 1 || !remains(mine) || remains(theirs) {
		t.Errorf("removed %+v, %v", done, err)
	}
}
