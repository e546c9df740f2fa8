package archive

import (
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// zipLevel makes artifacts about as small as compress/gzip does by default, in less than half the
// time. Another level gives equal archives other digests.
const zipLevel = 5

// zips are writers for reuse, since a new one takes a megabyte.
//
//nolint:gochecknoglobals // a pool of writers without content: each is reset before its next use.
var zips = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(io.Discard, zipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// zip compresses. It must be released.
type zip struct{ *gzip.Writer }

func newZip(out io.Writer) zip {
	w := zips.Get().(*gzip.Writer) //nolint:forcetypeassert // nothing else is put there
	w.Reset(out)
	return zip{w}
}

// release gives the writer back, without a way to what was written.
func (z zip) release() {
	z.Reset(io.Discard)
	zips.Put(z.Writer)
}
