package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// noteSuffix replaces fileSuffix in the name of a note.
const noteSuffix = ".note"

// Annotate stores the output of write as the note of an artifact in the store. A note is what the
// producer must remember about the artifact. It counts against the store's bounds like an artifact,
// is never served, and is removed with its artifact. An earlier note is replaced. Errors are those
// of Put, and ErrNotFound if there is no such artifact.
func (s *Store) Annotate(ctx context.Context, o Object, digest string, write func(io.Writer) error) error {
	o, err := o.check()
	if err != nil {
		return err
	}
	sum, err := checkDigest(digest)
	if err != nil {
		return err
	}
	tmp := tempName()
	w := &writer{ctx: ctx, store: s, namespace: o.Namespace, hash: sha256.New()}
	if w.file, err = s.create(tmp); err != nil {
		return fmt.Errorf("store the artifact's note: %w", full(err))
	}
	err = w.finish(write(w))
	if err == nil {
		err = s.attach(o, sum, tmp)
	}
	if err != nil {
		_ = s.root.Remove(tmp)
		s.account(o.Namespace, -w.n)
		return err
	}
	return s.syncDir(o.dir())
}

// attach renames the finished note to its final name, beside its artifact.
func (s *Store) attach(o Object, sum, tmp string) error {
	s.tree.Lock()
	defer s.tree.Unlock()
	if _, err := s.root.Lstat(path.Join(o.dir(), sum+fileSuffix)); errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	} else if err != nil {
		return fmt.Errorf("store the artifact's note: %w", err)
	}
	final := path.Join(o.dir(), sum+noteSuffix)
	before := s.noteSize(o, sum)
	if err := s.root.Rename(tmp, final); err != nil {
		return fmt.Errorf("store the artifact's note: %w", full(err))
	}
	s.account(o.Namespace, -before)
	return nil
}

// Note opens the note of the object's artifact, or returns ErrNotFound. The caller closes the file.
func (s *Store) Note(o Object, digest string) (*os.File, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	sum, err := checkDigest(digest)
	if err != nil {
		return nil, err
	}
	return s.open(path.Join(o.dir(), sum+noteSuffix))
}

// noteSize returns the length of an artifact's note; 0 if there is none.
func (s *Store) noteSize(o Object, sum string) int64 {
	info, err := s.root.Lstat(path.Join(o.dir(), sum+noteSuffix))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (s *Store) open(name string) (*os.File, error) {
	f, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	return f, err
}
