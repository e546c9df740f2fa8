package objectstore

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
)

// Previous is an earlier artifact with its index. Objects in it that are still current are not
// fetched again.
type Previous struct {
	Index   io.Reader
	Archive io.Reader
}

// ErrPrevious means that the previous artifact does not match its index. The caller can call
// [Write] again without the previous artifact.
var ErrPrevious = errors.New("the previous artifact cannot be used")

// Summary says where the objects of an artifact came from.
type Summary struct {
	// Fetched is the number of objects that were fetched.
	Fetched int
	// Kept is the number of objects that were taken from the previous artifact.
	Kept int
}

// Write writes the archive of an index's objects to out, in the index's order. The output is
// normalized as by archive.Normalize: equal objects give equal bytes, whether they were fetched or
// kept. maxBytes bounds the archive as Options.MaxBytes does. After an error, the data in out is
// useless. The error is one of List's errors, an error of a write to out, or ErrPrevious.
func Write(ctx context.Context, storage Storage, index *Index, previous *Previous, out io.Writer, maxBytes int64) (Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &writer{index: index}
	items := plan(ctx, storage, index, previous)
	pr, pw := io.Pipe()
	failed, written := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(written)
		err := w.write(ctx, items, previous, pw)
		if err != nil {
			// The pipe gets only a fixed error: io.EOF from a broken connection would look like the
			// end of the archive.
			failed <- err
			err = errWriter
		}
		pw.CloseWithError(err)
	}()
	// Package archive counts folders too, and each object may imply folders. So allow twice as many
	// files.
	_, err := archive.Normalize(ctx, pr, out, archive.Options{Limits: archive.Limits{MaxBytes: maxBytes, MaxFiles: 2 * MaxObjects}})
	if err != nil {
		select {
		case err = <-failed:
		default: // keep err: the archive was refused, or a write to out failed
		}
	}
	cancel()
	_ = pr.CloseWithError(errUnwanted)
	<-written
	for item := range items {
		item.discard()
	}
	return w.done, err
}

// These errors go through the pipe in place of the real errors.
var (
	errWriter   = errors.New("the archive could not be written")
	errUnwanted = errors.New("the archive is no longer wanted")
)

type writer struct {
	index *Index
	done  Summary
}

// write writes the tar archive without compression. It recovers from panics of third-party clients;
// see [pending.read].
func (w *writer) write(ctx context.Context, items <-chan item, previous *Previous, out io.Writer) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	// Each write to the pipe wakes the reader, and there are many small objects. So collect writes.
	buffered := bufio.NewWriterSize(out, 64<<10)
	tw := tar.NewWriter(buffered)
	var old *kept
	for it := range items {
		if it.err != nil {
			return it.err
		}
		e := w.index.entries[it.at]
		hdr := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o644, Size: e.Size, ModTime: time.Unix(0, 0)}
		if err := tw.WriteHeader(hdr); err != nil {
			it.discard()
			return err
		}
		if it.content == nil {
			if old == nil {
				old = newKept(previous.Archive)
			}
			if err := old.copy(tw, e); err != nil {
				return err
			}
			w.done.Kept++
			continue
		}
		c, err := it.content.wait()
		if err != nil {
			return err
		}
		err = c.copy(tw)
		c.close()
		if err != nil {
			return err
		}
		w.done.Fetched++
	}
	// If ctx ends, the channel items may be closed before it has delivered all objects. The archive
	// is then incomplete.
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if old != nil {
		if err := old.check(); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// kept reads the previous archive once, from its beginning to its end. Files can be copied only in
// the order in which they stand in the previous archive.
type kept struct {
	plain *gzip.Reader
	files *tar.Reader
	buf   []byte
	err   error
}

func newKept(r io.Reader) *kept {
	plain, err := gzip.NewReader(r)
	if err != nil {
		return &kept{err: err}
	}
	return &kept{plain: plain, files: tar.NewReader(plain), buf: make([]byte, 32<<10)}
}

func (k *kept) copy(out io.Writer, e entry) error {
	for k.err == nil {
		var hdr *tar.Header
		if hdr, k.err = k.files.Next(); k.err != nil || hdr.Name != e.name {
			continue
		}
		if hdr.Size != e.Size {
			k.err = errors.New("a file has another size than the index says")
			break
		}
		source := &reader{r: k.files}
		_, err := io.CopyBuffer(struct{ io.Writer }{out}, source, k.buf)
		if k.err = source.err; k.err == nil {
			return err // nil, unless writing to out failed
		}
	}
	return fmt.Errorf("%w: %w", ErrPrevious, k.err)
}

// check reads the rest of the previous archive. The archive's checksum comes at the end and covers
// all files that were copied.
func (k *kept) check() error {
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, k.plain, k.buf); err != nil {
		return fmt.Errorf("%w: %w", ErrPrevious, err)
	}
	return nil
}

// reader remembers its read error, to distinguish it from a write error.
type reader struct {
	r   io.Reader
	err error
}

func (s *reader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
