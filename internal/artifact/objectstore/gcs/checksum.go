package gcs

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
)

// errCorrupt means that the content differs from what the service stored. It wraps
// io.ErrUnexpectedEOF, so that the object is read again.
var errCorrupt = fmt.Errorf("the content does not match its checksum: %w", io.ErrUnexpectedEOF)

// content reads an object and verifies its checksum. If the checksum is wrong, Read returns an
// error instead of the last bytes. A reader that counts bytes would ignore an error after the last
// byte.
type content struct {
	io.ReadCloser

	sum  hash.Hash32
	want uint32
	left int64 // bytes of the object that are not read yet
}

// checked returns a body that verifies the checksum. Not all objects have a checksum: without one,
// checked returns the answer's body as it is.
func checked(resp *http.Response, size int64) io.ReadCloser {
	want, ok := checksum(resp.Header)
	if !ok {
		return resp.Body
	}
	return &content{ReadCloser: resp.Body, sum: crc32.New(crc32.MakeTable(crc32.Castagnoli)), want: want, left: size}
}

// Read implements io.Reader.
func (c *content) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	_, _ = c.sum.Write(b[:n]) // a hash never fails
	c.left -= int64(n)
	// Compare the checksum as soon as the announced number of bytes is read. If the object has more
	// bytes, the caller of Read detects it.
	if n > 0 && c.left == 0 && c.sum.Sum32() != c.want {
		return 0, errCorrupt
	}
	return n, err
}

// checksum returns the CRC32C of the stored bytes. Source: Cloud Storage XML API, "x-goog-hash".
// The JSON API sends the same header.
func checksum(header http.Header) (uint32, bool) {
	for _, value := range header.Values("X-Goog-Hash") {
		for part := range strings.SplitSeq(value, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(part), "crc32c=")
			if !ok {
				continue
			}
			sum, err := base64.StdEncoding.DecodeString(encoded)
			return binary.BigEndian.Uint32(append(sum, 0, 0, 0, 0)), err == nil && len(sum) == 4
		}
	}
	return 0, false
}
