package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// noteSuffix replaces fileSuffix in the name of a note.
const noteSuffix = ".note"

// Annotate calls write, and stores the output as the note of a stored artifact. It replaces an
// earlier note. A note is what the producer must remember about the artifact. Notes are never
// served. They count against the store's bounds like artifacts, and are removed with their
// artifacts. Errors are those of Put, and ErrNotFound if there is no such artifact.
func (s *Store) Annotate(ctx context.Context, o Object, digest string, write func(io.Writer) error) error {
	o, sum, err := o.artifact(digest)
	if err != nil {
		return err
	}
	w := &writer{ctx: ctx, store: s, owner: o, what: "artifact's note", tmp: tempName(), counts: sum, hash: sha256.New()}
	return w.keep(write, func() (name string, err error) {
		_, err = s.root.Lstat(path.Join(o.dir(), sum+fileSuffix))
		if errors.Is(err, fs.ErrNotExist) {
			return "", ErrNotFound
		}
		return sum + noteSuffix, w.failed(err)
	})
}

// Note opens the note of the object's artifact, or returns ErrNotFound. The caller closes the file.
func (s *Store) Note(o Object, digest string) (*os.File, error) {
	o, sum, err := o.artifact(digest)
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
