package aws

import (
	"crypto/md5"  //nolint:gosec // RFC 1864 says so; it guards against accidents only
	"crypto/sha1" //nolint:gosec // one of S3's checksums, for the same purpose
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"net/http"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// nvme is the polynomial of CRC-64/NVME, bit-reversed. Source: NVM Express, "NVM Command Set
// Specification", 64-bit CRC.
const nvme = 0x9a6c9329ac4bc9b5

// checksum is a kind of checksum, such as CRC-64/NVME. A client may send a content's checksum in a
// header or a trailer, in base64.
type checksum struct {
	header  string // lower case
	name    string // in S3's error message
	compute func() hash.Hash
}

// checksums returns the kinds of checksums of S3. Source: Amazon S3 User Guide, "Checking object
// integrity for data uploads".
func checksums() []checksum {
	return []checksum{
		{"content-md5", "Content-MD5", md5.New},
		{"x-amz-checksum-crc32", "CRC32", func() hash.Hash { return crc32.NewIEEE() }},
		{"x-amz-checksum-crc32c", "CRC32C", func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }},
		{"x-amz-checksum-crc64nvme", "CRC64NVME", func() hash.Hash { return crc64.New(crc64.MakeTable(nvme)) }},
		{"x-amz-checksum-sha1", "SHA1", sha1.New},
		{"x-amz-checksum-sha256", "SHA256", sha256.New},
	}
}

func checksumHeaders() []string {
	var names []string
	for _, c := range checksums() {
		names = append(names, c.header)
	}
	return names
}

// checkDigests checks a request's content against every checksum in its headers and trailers.
func checkDigests(content []byte, header, trailer http.Header) *service.Refusal {
	for name := range trailer {
		if !slices.Contains(checksumHeaders(), strings.ToLower(name)) {
			return service.Refuse(http.StatusBadRequest, "MalformedTrailerError",
				"The request contained trailing data that was not well-formed or did not conform to our published schema.")
		}
	}
	for _, c := range checksums() {
		for _, claimed := range append(slices.Clone(header.Values(c.header)), trailer.Values(c.header)...) {
			h := c.compute()
			h.Write(content)
			if claimed != base64.StdEncoding.EncodeToString(h.Sum(nil)) {
				return service.Refuse(http.StatusBadRequest, "BadDigest",
					"The "+c.name+" you specified did not match the calculated checksum.")
			}
		}
	}
	return nil
}
