package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// Bounds of an answer that is not an object's content. The longest such answers are pages of a
// listing, with at most a thousand objects.
const (
	// maxPage bounds the bytes of a page. A thousand keys of 1024 bytes fit, even if each byte is
	// percent-encoded as three bytes. Another KiB for each object is left for the text around the
	// key.
	maxPage = 4 << 20
	// maxParts bounds the number of bytes "<" and "=" in a page. They stand for XML tags and
	// attributes; see [readPage]. A page has at most a thousand objects, and maxParts allows a
	// hundred of these bytes for each. An object of Azure has about sixty tags. The "=" in an
	// object's key is counted too, but few keys contain "=".
	maxParts = 100 * 1000
)

// readPage reads an answer to its end. It returns an error if the answer is too long or has too
// many parts. Parts are XML tags and attributes. readPage reads the whole answer before a cloud's
// library decodes it. So no library spends time on an answer that is refused.
//
// A bound on the bytes is not enough. A client needs a hundred bytes of memory for a part of a few
// bytes, such as <Contents/>. So readPage also counts the bytes "<" and "=" in the whole answer:
// every XML tag and attribute needs one of them. readPage does not parse XML: another parser than
// the client's could count fewer parts in a hostile answer. JSON needs neither "<" nor "=", so the
// decoder of JSON pages must bound the values; see package boundedjson.
//
// readPage takes memory from the program's pool, for the page and for the page's decoder. The
// result taken is the number of bytes. After an error, readPage has given the memory back.
func readPage(ctx context.Context, answer io.Reader, server origin.Server) (whole []byte, taken int64, err error) {
	var body bytes.Buffer
	defer func() {
		if err != nil {
			reserve.Free(ctx, taken)
			whole, taken = nil, 0
		}
	}()
	for parts := 0; ; {
		n, err := io.CopyN(&body, answer, 64<<10)
		next := body.Bytes()[body.Len()-int(n):]
		more := bytes.Count(next, []byte("<")) + bytes.Count(next, []byte("="))
		parts += more
		switch {
		case body.Len() > maxPage:
			return nil, taken, TooLarge(server, "is longer than %d bytes", maxPage)
		case parts > maxParts:
			return nil, taken, TooLarge(server, "has more than %d parts", maxParts)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, taken, err
		}
		// Commas count too, because JSON separates its values by commas. TestCostOfPages compares the
		// cost with the memory that the libraries allocate.
		cost := reserve.Cost(len(next), more+bytes.Count(next, []byte(",")))
		if err := reserve.Take(ctx, cost); err != nil {
			return nil, taken, err
		}
		taken += cost
		if err != nil { // io.EOF
			return body.Bytes(), taken, nil
		}
	}
}

// TooLarge returns the error for a page of a listing that exceeds a limit. The error's text is made
// of the format and the limit.
func TooLarge(server origin.Server, format string, limit int) error {
	return &origin.Error{Server: server, Code: origin.CodeTooLarge, Fix: fixFewer, Err: fmt.Errorf("a page of the listing "+format, limit)}
}
