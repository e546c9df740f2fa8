package store

import (
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/must"
)

func readNote(t *testing.T, s *Store, o Object, digest string) string {
	t.Helper()
	f, err := s.Note(o, digest)
	if errors.Is(err, ErrNotFound) {
		return "none"
	}
	must.Succeed(t, err)
	defer f.Close()
	content, err := io.ReadAll(f)
	must.Succeed(t, err)
	return string(content)
}

func annotate(t *testing.T, s *Store, o Object, digest, content string) {
	t.Helper()
	must.Succeed(t, s.Annotate(t.Context(), o, digest, text(content)))
}

func TestNotesStayWithTheirArtifact(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	o := Object{Kind: "Bucket", Namespace: "tenant-a", Name: "app", UID: "11111111-2222-3333-4444-555555555555"}
	if err := s.Annotate(t.Context(), o, digestOf("one"), text("note")); !errors.Is(err, ErrNotFound) || s.Size() != 0 {
		t.Errorf("a note of nothing: %v, %d bytes", err, s.Size())
	}
	put(t, s, o, "one")
	put(t, s, o, "two")
	annotate(t, s, o, digestOf("one"), "first")
	annotate(t, s, o, digestOf("one"), "second note")
	annotate(t, s, o, digestOf("two"), "of two")
	if got := readNote(t, s, o, digestOf("one")); got != "second note" || s.Size() != 3+3+11+6 {
		t.Errorf("note %q, %d bytes", got, s.Size())
	}
	if got := readNote(t, s, object("tenant-b", "app"), digestOf("one")); got != "none" {
		t.Errorf("another tenant's note: %q", got)
	}
	// Storing the same content again keeps the artifact and its note.
	put(t, s, o, "one")
	// After a restart.
	must.Succeed(t, s.Close())
	s = open(t, dir, Options{})
	if got := readNote(t, s, o, digestOf("one")); got != "second note" || s.Size() != 3+3+11+6 {
		t.Errorf("after a restart: %q, %d bytes", got, s.Size())
	}
	f, err := s.Open(o, digestOf("two"))
	must.Succeed(t, err)
	content, err := io.ReadAll(f)
	_ = f.Close()
	if err != nil || string(content) != "two" {
		t.Errorf("artifact %q, %v", content, err)
	}

	s.keep = retention{ttl: time.Nanosecond, records: 1}
	done, err := s.Collect(t.Context(), func(Object) ([]string, bool) { return []string{digestOf("two")}, true })
	if err != nil || done.Artifacts != 1 || done.Bytes != 14 || done.Pending != nil || readNote(t, s, o, digestOf("one")) != "none" || s.Size() != 9 {
		t.Errorf("collected %+v, %v, %d bytes", done, err, s.Size())
	}
	if err := s.Remove(o); err != nil || s.Size() != 0 {
		t.Errorf("removed: %v, %d bytes", err, s.Size())
	}
	if left, err := filepath.Glob(filepath.Join(dir, "bucket*")); err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if _, err := s.Open(o, digestOf("two")); !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v", err)
	}
}

func TestNotesAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{MaxNamespaceBytes: 10})
	o := object("tenant-a", "app")
	put(t, s, o, "one")
	annotate(t, s, o, digestOf("one"), "small")
	if err := s.Annotate(t.Context(), o, digestOf("one"), text("larger")); !errors.Is(err, ErrNamespaceFull) {
		t.Errorf("error %v", err)
	}
	failed := errors.New("failed")
	if err := s.Annotate(t.Context(), o, digestOf("one"), func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if got := readNote(t, s, o, digestOf("one")); got != "small" || s.Size() != 8 || len(leftovers(t, dir)) != 0 {
		t.Errorf("note %q, %d bytes, %q", got, s.Size(), leftovers(t, dir))
	}
	for _, bad := range []string{"", "sha256:x", "../x"} {
		if err := s.Annotate(t.Context(), o, bad, text("x")); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := s.Note(o, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := s.Open(o, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := s.Annotate(t.Context(), Object{}, digestOf("one"), text("x")); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
