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
	// maxParts bounds the number of bytes "<" and "=" in a page. They stand for XML tags and
	// attributes; see [page]. A page has at most a thousand objects, and maxParts allows a hundred
	// of these bytes for each. An object of Azure has about sixty tags. The "=" in an object's key
	// is counted too, but few keys contain "=".
	maxParts = 100 * 1000
)

// page is the body of an answer. Read fails if the body is too long or has too many parts. Parts
// are XML tags and attributes.
//
// A bound on the bytes is not enough. A client needs a hundred bytes of memory for a part of a few
// bytes, such as <Contents/>. So page also counts the bytes "<" and "=" in the whole body: every
// XML tag and attribute needs one of them. page does not parse XML: another parser than the
// client's could count fewer parts in a hostile body. JSON needs neither "<" nor "=", so the
// decoder of JSON pages must bound the values; see package boundedjson.
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
