package archive

import (
	"bufio"
	"io"
)

// ahead is how many bytes of an archive may wait for compression. It is large enough that reading
// and compression do not wait for each other at each file.
const ahead = 256 << 10

// behind passes its bytes on to another writer in the background. So files are read and hashed
// while earlier files are compressed. The caller must call stop.
type behind struct {
	*bufio.Writer

	pipe  *io.PipeWriter
	ended chan struct{} // closed when the goroutine ends
	err   error         // error of the other writer; valid after <-b.ended
}

func newBehind(out io.Writer) *behind {
	r, w := io.Pipe()
	b := &behind{Writer: bufio.NewWriterSize(w, ahead), pipe: w, ended: make(chan struct{})}
	go func() {
		defer close(b.ended)
		_, b.err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{r}, make([]byte, ahead))
		_ = r.CloseWithError(b.err) // makes b.Write return b.err; cannot fail
	}()
	return b
}

// Close waits until everything is written to out. It does not close out.
func (b *behind) Close() error {
	if err := b.Flush(); err != nil {
		return err
	}
	b.stop()
	return b.err
}

// stop waits until the goroutine has ended. Bytes that were not flushed are lost.
func (b *behind) stop() {
	_ = b.pipe.Close() // it never fails
	<-b.ended
}
