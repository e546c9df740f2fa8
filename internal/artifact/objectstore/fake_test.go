package objectstore_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// fake is a bucket in memory. It lists its objects in the order of the slice.
type fake struct {
	objects []objectstore.Object
	// content maps keys to contents; if nil, every object has as many bytes as its size says.
	content map[string]string
	// body replaces the result of Open for the n-th opening of the key, counted from 1.
	body func(key string, n int) (io.ReadCloser, error)
	// listErr is the error at the end of the listing.
	listErr error

	open atomic.Int64 // bodies that are not closed

	mu     sync.Mutex
	opened map[string]int
	most   int64 // the most bodies that were open at once
}

// bucketOf returns a fake with objects from "key=content". The content is also the version.
func bucketOf(pairs ...string) *fake {
	f := &fake{content: map[string]string{}}
	for _, pair := range pairs {
		key, content, _ := strings.Cut(pair, "=")
		f.objects = append(f.objects, objectstore.Object{Key: key, Version: `"` + content + `"`, Size: int64(len(content))})
		f.content[key] = content
	}
	return f
}

func (f *fake) List(_ context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		for _, o := range f.objects {
			if strings.HasPrefix(o.Key, prefix) && !yield(o, nil) {
				return
			}
		}
		if f.listErr != nil {
			yield(objectstore.Object{}, f.listErr)
		}
	}
}

func (f *fake) Open(ctx context.Context, o objectstore.Object) (io.ReadCloser, error) {
	f.mu.Lock()
	if f.opened == nil {
		f.opened = map[string]int{}
	}
	f.opened[o.Key]++
	n := f.opened[o.Key]
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var body io.ReadCloser
	switch {
	case f.body != nil:
		var err error
		if body, err = f.body(o.Key, n); err != nil {
			return nil, err
		}
	case f.content != nil:
		body = io.NopCloser(strings.NewReader(f.content[o.Key]))
	default:
		body = io.NopCloser(io.LimitReader(zeros{}, o.Size))
	}
	now := f.open.Add(1)
	f.mu.Lock()
	f.most = max(f.most, now)
	f.mu.Unlock()
	return &closing{Reader: body, f: f}, nil
}

func (f *fake) openings() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := 0
	for _, n := range f.opened {
		sum += n
	}
	return sum
}

type closing struct {
	io.Reader

	f    *fake
	once sync.Once
}

func (c *closing) Close() error {
	c.once.Do(func() { c.f.open.Add(-1) })
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// artifact is the result of List and Write for a bucket.
type artifact struct {
	index    *objectstore.Index
	text     []byte
	bytes    []byte
	summary  objectstore.Summary
	revision string
}

func fetch(tb testing.TB, s objectstore.Storage, previous *artifact, opts objectstore.Options) (*artifact, error) {
	tb.Helper()
	index, err := objectstore.List(tb.Context(), s, "test", opts)
	if err != nil {
		return nil, err
	}
	a := &artifact{index: index, revision: index.Revision()}
	var text, out bytes.Buffer
	must.Succeed(tb, index.Encode(&text))
	var old *objectstore.Previous
	if previous != nil {
		old = &objectstore.Previous{Index: bytes.NewReader(previous.text), Archive: bytes.NewReader(previous.bytes)}
	}
	if a.summary, err = objectstore.Write(tb.Context(), s, index, old, &out, opts.MaxBytes); err != nil {
		return nil, err
	}
	a.text, a.bytes = text.Bytes(), out.Bytes()
	return a, nil
}

func mustFetch(tb testing.TB, s objectstore.Storage, previous *artifact, opts objectstore.Options) *artifact {
	tb.Helper()
	a, err := fetch(tb, s, previous, opts)
	must.Succeed(tb, err)
	return a
}

// files returns the files of an artifact in the archive's order. Each file is written as
// "name=content".
func (a *artifact) files(tb testing.TB) []string {
	tb.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(a.bytes))
	must.Succeed(tb, err)
	var files []string
	for tr := tar.NewReader(plain); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must.Succeed(tb, err)
		content, err := io.ReadAll(tr)
		must.Succeed(tb, err)
		if hdr.Typeflag != tar.TypeReg || hdr.Mode != 0o644 || hdr.Uid != 0 || hdr.ModTime.Unix() != 0 || len(hdr.PAXRecords) > 1 {
			tb.Errorf("header of %q is not uniform: %+v", hdr.Name, hdr)
		}
		files = append(files, fmt.Sprintf("%s=%s", hdr.Name, content))
	}
}

func patterns(tb testing.TB, text string) archive.Patterns {
	tb.Helper()
	p, err := archive.ParsePatterns(text)
	must.Succeed(tb, err)
	return p
}

func create(tb testing.TB, name string) *os.File {
	tb.Helper()
	f, err := os.Create(name)
	must.Succeed(tb, err)
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

func open(tb testing.TB, name string) *os.File {
	tb.Helper()
	f, err := os.Open(name)
	must.Succeed(tb, err)
	tb.Cleanup(func() { _ = f.Close() })
	return f
}
