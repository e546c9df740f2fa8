package archive

import (
	"bufio"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// zipLevel gives about the same size as compress/gzip's default, in less than half the time.
// Another level would change the digests of all archives.
const zipLevel = 5

// zipBlock is how many compressed bytes are written at once. By itself, gzip writes a few hundred
// bytes at a time.
const zipBlock = 64 << 10

// zips is a pool of writers, because a new writer takes a megabyte.
//
//nolint:gochecknoglobals // a pool of writers without content: each is reset before its next use.
var zips = sync.Pool{New: func() any {
	out := bufio.NewWriterSize(io.Discard, zipBlock)
	w, err := gzip.NewWriterLevel(out, zipLevel)
	if err != nil {
		panic(err) // cannot happen: the constant is a valid level
	}
	return &zip{w, out}
}}

// zip is a compressing writer. The caller must call release.
type zip struct {
	*gzip.Writer

	out *bufio.Writer
}

func newZip(out io.Writer) *zip {
	z := zips.Get().(*zip) // the pool has only this type
	z.out.Reset(out)
	return z
}

func (z *zip) Close() error {
	if err := z.Writer.Close(); err != nil {
		return err
	}
	return z.out.Flush()
}

// release returns the writer to the pool, without a reference to its output.
func (z *zip) release() {
	z.out.Reset(io.Discard)
	z.Reset(z.out)
	zips.Put(z)
}
