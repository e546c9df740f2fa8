package archive

import (
	"bufio"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// zipLevel makes artifacts about as small as compress/gzip does by default, in less than half the
// time. Another level gives equal archives other digests.
const zipLevel = 5

// zipBlock is how much is written at once, in bytes. By itself, gzip writes some hundred bytes at a
// time.
const zipBlock = 64 << 10

// zips are writers for reuse, since a new one takes a megabyte.
//
//nolint:gochecknoglobals // a pool of writers without content: each is reset before its next use.
var zips = sync.Pool{New: func() any {
	out := bufio.NewWriterSize(io.Discard, zipBlock)
	w, err := gzip.NewWriterLevel(out, zipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	return &zip{w, out}
}}

// zip compresses. It must be released.
type zip struct {
	*gzip.Writer

	out *bufio.Writer
}

func newZip(out io.Writer) *zip {
	z := zips.Get().(*zip) //nolint:forcetypeassert // nothing else is put there
	z.out.Reset(out)
	return z
}

func (z *zip) Close() error {
	if err := z.Writer.Close(); err != nil {
		return err
	}
	return z.out.Flush()
}

// release gives the writer back, without a way to what was written.
func (z *zip) release() {
	z.out.Reset(io.Discard)
	z.Reset(z.out)
	zips.Put(z)
}
