package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A message on a pipe is a frame: the length of the content in eight bytes, most significant byte
// first, and then the content. The first frame of a child is empty if the child has given up its
// rights. Otherwise the first frame says why the child could not give them up.

// errTooLong says that a frame is longer than the receiver allows.
var errTooLong = errors.New("the message is too long")

// maxRefusal bounds the first frame of a child, in bytes.
const maxRefusal = 4 << 10

// writeFrame writes one frame. The content is the concatenation of the parts.
func writeFrame(w io.Writer, parts ...[]byte) error {
	var length uint64
	for _, part := range parts {
		length += uint64(len(part))
	}
	if _, err := w.Write(binary.BigEndian.AppendUint64(nil, length)); err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// readFrame reads one frame with at most limit bytes of content. Before the first byte of a frame,
// the end of the input is io.EOF.
func readFrame(r io.Reader, limit int64) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint64(head[:])
	if length > math.MaxInt64 || int64(length) > limit {
		return nil, fmt.Errorf("%w: %d bytes, and %d are allowed", errTooLong, length, limit)
	}
	content := make([]byte, length)
	if _, err := io.ReadFull(r, content); err != nil {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return content, nil
}
