package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestCollectObjects checks that only the given object's garbage is removed, and that the caller
// learns whether more can be removed later.
func TestCollectObjects(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	app, other := object("tenant-a", "app"), object("tenant-b", "app")
	app.Kind, other.Kind = "ocirepository", "ocirepository" // Collect returns kinds in lower case
	for _, o := range []Object{app, other} {
		for _, content := range []string{"old", "current"} {
			put(t, s, o, content)
		}
	}
	current := []string{digestOf("current")}
	collect := func(o Object, exists bool) (removed int, pending bool) {
		t.Helper()
		done, err := s.CollectObjects(t.Context(), []Object{o}, func(Object) ([]string, bool) { return current, exists })
		must.Succeed(t, err)
		return done.Artifacts, slices.Equal(done.Pending, []Object{o})
	}
	if removed, pending := collect(app, true); removed != 0 || !pending {
		t.Errorf("just replaced: %d removed, pending %v", removed, pending)
	}
	current = append(current, digestOf("old"))
	if removed, pending := collect(app, true); removed != 0 || !pending {
		t.Errorf("named beside its successor, until the status is written: %d removed, pending %v", removed, pending)
	}
	current = current[:1]
	age := func(o Object) {
		t.Helper()
		files, err := s.files(o)
		must.Succeed(t, err)
		for _, f := range files {
			then := f.Time.Add(-time.Hour)
			must.Succeed(t, os.Chtimes(filepath.Join(dir, filepath.FromSlash(f.Path)), then, then))
		}
	}
	age(app)
	age(other)
	if removed, pending := collect(app, true); removed != 1 || pending {
		t.Errorf("replaced long ago: %d removed, pending %v", removed, pending)
	}
	if files, err := s.files(other); err != nil || len(files) != 2 {
		t.Errorf("the other object has %d artifacts, %v", len(files), err)
	}
	if removed, pending := collect(app, false); removed != 1 || pending {
		t.Errorf("gone: %d removed, pending %v", removed, pending)
	}
	if _, err := s.CollectObjects(t.Context(), []Object{{Kind: "../x"}}, nil); err == nil {
		t.Error("an object that leads out of the store")
	}
}
