package objectstore

import (
	"bytes"
	"fmt"
	"io"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// Bounds of an answer that is not an object's content. The longest such answers are pages of a
// listing, with at most a thousand objects.
const (
	// maxPage bounds the bytes of a page: a thousand keys of 1024 bytes, every byte escaped, and
	// the text around the keys.
	maxPage = 8 << 20
	// maxParts bounds the parts of a page, which are XML tags and attributes (see page): a hundred
	// for each of a thousand objects. Azure's objects have about sixty tags, and few keys contain
	// "=".
	maxParts = 100 * 1000
)

// page is the body of an answer. Read fails if the body is too long or has too many parts.
//
// A bound on the bytes is not enough: a client needs a hundred bytes of memory for a part of a few
// bytes, such as <Contents/>. So the page also counts the bytes "<" and "=" in the whole body:
// every XML tag and attribute needs one of them. The page does not parse XML, because its parser
// could differ from the client's parser and count fewer parts of a hostile body. JSON can be
// written without these bytes, so the JSON decoder must bound the parts (package boundedjson).
type page struct {
	io.ReadCloser

	server origin.Server
	left   int64 // bytes that may still be read
	parts  int
}

// Read implements io.Reader.
func (p *page) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, TooLarge(p.server, "is longer than %d bytes", maxPage)
	}
	n, err := p.ReadCloser.Read(b[:min(int64(len(b)), p.left)])
	p.left -= int64(n)
	for _, mark := range []string{"<", "="} { // "<" of tags, "=" of attributes
		p.parts += bytes.Count(b[:n], []byte(mark))
	}
	if p.parts > maxParts {
		return 0, TooLarge(p.server, "has more than %d parts", maxParts)
	}
	return n, err
}

// TooLarge returns the error for a page of a listing that exceeds a limit. The error's text is made
// of the format and the limit.
func TooLarge(server origin.Server, format string, limit int) error {
	return &origin.Error{Server: server, Code: origin.CodeTooLarge, Fix: fixFewer, Err: fmt.Errorf("a page of the listing "+format, limit)}
}
