package objectstore

import (
	"bytes"
	"fmt"
	"io"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// Bounds of an answer that is no object's content. The longest are pages of a listing, of a
// thousand objects at most.
const (
	// maxPage bounds its bytes: a thousand keys of 1024 bytes, every byte escaped, and what stands
	// around them.
	maxPage = 8 << 20
	// maxParts bounds its parts: a hundred for each of a thousand objects. Azure's have about sixty
	// tags, and few keys have "=".
	maxParts = 100 * 1000
)

// page is the body of an answer that fails after too much of it.
//
// A bound on the bytes is not enough: of a part of a few bytes, such as <Contents/>, a client makes
// a hundred in memory. So the page counts the bytes without which XML has no tag and no attribute,
// wherever they stand. It reads no grammar, since a reader with another grammar than the client's
// can be led to count less than the client builds. JSON can be written with neither byte: who
// decodes it bounds it (package boundedjson).
type page struct {
	io.ReadCloser

	server origin.Server
	left   int64 // bytes that may still come
	parts  int
}

func newPage(body io.ReadCloser, server origin.Server) *page {
	return &page{ReadCloser: body, server: server, left: maxPage}
}

// Read implements io.Reader.
func (p *page) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, TooLarge(p.server, "is longer than %d bytes", maxPage)
	}
	n, err := p.ReadCloser.Read(b[:min(int64(len(b)), p.left)])
	p.left -= int64(n)
	for _, mark := range []string{"<", "="} { // of a tag, of an attribute
		p.parts += bytes.Count(b[:n], []byte(mark))
	}
	if p.parts > maxParts {
		return 0, TooLarge(p.server, "has more than %d parts", maxParts)
	}
	return n, err
}

// TooLarge is the refusal of a page of a listing; format says by which limit.
func TooLarge(server origin.Server, format string, limit int) error {
	return &origin.Error{Server: server, Code: origin.CodeTooLarge, Fix: fixFewer, Err: fmt.Errorf("a page of the listing "+format, limit)}
}
