package sigv4

import (
	"bytes"
	"crypto/hmac"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxChunks is the maximum number of chunks in an upload. S3 requires at least 8 KiB in every chunk
// but the last. So any upload of up to 511 MiB has few enough chunks.
const maxChunks = 1 << 16

// chunks is an upload in S3's chunked form (aws-chunked). Each chunk has a line with the
// hexadecimal size, and with a signature if chunks are signed. The data follows. A CRLF ends the
// line, and another CRLF ends the data. The last chunk has the size 0, and the trailers follow it.
// Each signature covers the previous signature, so that chunks cannot be left out or moved.
// Sources: Amazon S3 API Reference, "Signature Calculations for the Authorization Header:
// Transferring Payload in Multiple Chunks" and "Signature calculations for trailing headers".
type chunks struct {
	rest     []byte
	declared string                                   // length of the content, decimal
	trailers []string                                 // names of the announced trailers, lower case
	previous []byte                                   // signature that the next signature covers
	signer   func(kind string, rest ...string) []byte // nil if the chunks are not signed
}

func (s Signature) chunkSigner(secret string) func(string, ...string) []byte {
	return func(kind string, rest ...string) []byte { return s.sign(secret, kind, rest...) }
}

// trailerNames returns the names of the trailers that the request announces.
func trailerNames(r *http.Request) []string {
	var names []string
	for _, v := range r.Header.Values("X-Amz-Trailer") {
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, strings.ToLower(strings.TrimSpace(name)))
		}
	}
	slices.Sort(names)
	return names
}

func incompleteBody() error {
	return &ContentError{"IncompleteBody", "The request body terminated unexpectedly"}
}

func malformedTrailer() error {
	return &ContentError{
		"MalformedTrailerError", "The request contained trailing data that was not well-formed or did not conform to our published schema.",
	}
}

// read returns the content and its trailers.
func (c *chunks) read() (content []byte, trailer http.Header, err error) {
	length, err := strconv.Atoi(c.declared)
	if err != nil || length < 0 {
		return nil, nil, &ContentError{"MissingContentLength", "You must provide the Content-Length HTTP header."}
	}
	for range maxChunks {
		data, err := c.chunk()
		if err != nil {
			return nil, nil, err
		}
		if len(data) > 0 {
			content = append(content, data...)
			continue
		}
		if len(content) != length {
			return nil, nil, incompleteBody()
		}
		if trailer, err = c.readTrailer(); err != nil {
			return nil, nil, err
		}
		return content, trailer, nil
	}
	return nil, nil, incompleteBody()
}

// line removes the next line from c.rest and returns it without its CRLF.
func (c *chunks) line() (string, bool) {
	line, rest, ok := bytes.Cut(c.rest, []byte("\r\n"))
	c.rest = rest
	return string(line), ok
}

// chunk removes the next chunk from c.rest and returns its data. The last chunk is empty.
func (c *chunks) chunk() ([]byte, error) {
	head, ok := c.line()
	digits, signature, signed := strings.Cut(head, ";chunk-signature=")
	size, err := strconv.ParseUint(digits, 16, 31)
	if !ok || err != nil || signed != (c.signer != nil) || int(size) > len(c.rest) {
		return nil, incompleteBody()
	}
	data := c.rest[:size]
	c.rest = c.rest[size:]
	if size > 0 && !bytes.HasPrefix(c.rest, []byte("\r\n")) {
		return nil, incompleteBody()
	}
	if size > 0 {
		c.rest = c.rest[2:]
	}
	if c.signer == nil {
		return data, nil
	}
	return data, c.verify(signature, algorithm+"-PAYLOAD", sum(nil), sum(data))
}

// verify checks the signature of a chunk or of the trailers. The signature covers the previous
// signature.
func (c *chunks) verify(signature, kind string, rest ...string) error {
	want := c.signer(kind, append([]string{hex.EncodeToString(c.previous)}, rest...)...)
	got, err := hex.DecodeString(signature)
	if err != nil || !hmac.Equal(got, want) {
		return mismatch("the signature of a chunk or of the trailers")
	}
	c.previous = want
	return nil
}

// readTrailer reads the trailers and the end of the content. It refuses trailers other than the
// announced ones.
func (c *chunks) readTrailer() (http.Header, error) {
	trailer := http.Header{}
	var canonical strings.Builder
	var names []string
	signature := ""
	for {
		line, ok := c.line()
		if !ok {
			return nil, malformedTrailer()
		}
		if line == "" {
			break
		}
		// Some clients add a LF before the CRLF.
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		name, value = strings.ToLower(name), strings.TrimSpace(value)
		switch {
		case !ok || signature != "" || slices.Contains(names, name):
			return nil, malformedTrailer()
		case name == "x-amz-trailer-signature":
			signature = value
		default:
			names = append(names, name)
			trailer.Set(name, value)
			canonical.WriteString(name + ":" + value + "\n")
		}
	}
	slices.Sort(names)
	if len(c.rest) > 0 || !slices.Equal(names, c.trailers) || (signature != "") != (c.signer != nil && len(names) > 0) {
		return nil, malformedTrailer()
	}
	if signature != "" {
		return trailer, c.verify(signature, algorithm+"-TRAILER", sum([]byte(canonical.String())))
	}
	return trailer, nil
}
