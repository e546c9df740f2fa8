package bucket

import (
	"fmt"
	"io"
)

// Bounds of an answer that is no object's content. The longest are pages of a listing, of a thousand objects at most.
const (
	// maxPage bounds its bytes: a thousand keys of 1024 bytes, every byte escaped, and what stands around them.
	maxPage = 8 << 20
	// maxParts bounds its parts: a hundred for each of a thousand objects. Azure's have about sixty. A client makes of a part of a
	// few bytes, such as <Contents/>, a hundred in memory.
	maxParts = 100 * 1000
	// objectParts is what an object of JSON counts for. Google's client makes of two bytes more than a thousand.
	objectParts = 10
)

// page is the body of an answer that fails after too much of it.
type page struct {
	io.ReadCloser

	host  string
	left  int64 // bytes that may still come
	parts int

	// Where in JSON the last byte stands. XML has nothing of the kind: a "<" is always a tag there.
	quoted, escaped bool
	xml             bool
}

func newPage(body io.ReadCloser, host string) *page {
	return &page{ReadCloser: body, host: host, left: maxPage}
}

// Read implements io.Reader.
func (p *page) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, p.tooLarge("is longer than %d bytes", maxPage)
	}
	n, err := p.ReadCloser.Read(b[:min(int64(len(b)), p.left)])
	p.left -= int64(n)
	if p.count(b[:n]); p.parts > maxParts {
		return 0, p.tooLarge("has more than %d parts", maxParts)
	}
	return n, err
}

func (p *page) tooLarge(format string, limit int) error {
	return &Error{Code: CodeTooLarge, Host: p.host, Err: fmt.Errorf("a page of the listing "+format, limit)}
}

// count counts the tags of XML, or the objects, arrays and commas of JSON.
func (p *page) count(b []byte) {
	for _, c := range b {
		switch {
		case p.escaped:
			p.escaped = false
		case p.quoted:
			p.escaped, p.quoted = c == '\\', c != '"'
		case c == '<':
			p.xml = true
			p.parts++
		case p.xml:
		case c == '"':
			p.quoted = true
		case c == '{':
			p.parts += objectParts
		case c == '[', c == ',':
			p.parts++
		}
	}
}
