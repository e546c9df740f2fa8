package store

import (
	"crypto/hmac"
	"encoding/hex"
	"os"
	"path"
	"strings"
)

// maxUIDs bounds how many UIDs a request tries. An object's name has a folder for each UID.
// Usually only one folder exists, because Collect removes the artifacts of deleted objects.
const maxUIDs = 16

// Open opens the object's artifact, or returns ErrNotFound. It does not compare the content with
// the digest; see Verify. The caller closes the file.
func (s *Store) Open(o Object, digest string) (*os.File, error) {
	o, sum, err := o.artifact(digest)
	if err != nil {
		return nil, err
	}
	return s.open(path.Join(o.dir(), sum+fileSuffix))
}

// ByURLPath opens the artifact for a path that URLPath has returned, and returns its digest. For
// every other path, and for an artifact that does not exist, the error is ErrNotFound. The caller
// closes the file.
func (s *Store) ByURLPath(urlPath string) (f *os.File, digest string, err error) {
	rest, ok := strings.CutPrefix(urlPath, "/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 5 {
		return nil, "", ErrNotFound
	}
	sum, ok := strings.CutSuffix(parts[4], fileSuffix)
	if !ok || !isHex(sum) || !isHex(parts[3]) {
		return nil, "", ErrNotFound
	}
	given, err := hex.DecodeString(parts[3])
	if err != nil {
		return nil, "", ErrNotFound
	}
	// A URL has no UID. Any valid UID will do to check the other parts.
	o, err := Object{Kind: parts[0], Namespace: parts[1], Name: parts[2], UID: "0"}.check()
	if err != nil || o.Kind != parts[0] {
		return nil, "", ErrNotFound
	}
	entries, err := s.list(path.Dir(o.dir()))
	if err != nil {
		return nil, "", err
	}
	if len(entries) == 0 {
		// Do as much work as for an object that exists, so that the response time does not reveal
		// whether an object exists.
		_ = hmac.Equal(mac(s.key, o, sum), given)
	}
	for _, e := range entries[:min(len(entries), maxUIDs)] {
		o.UID = e.Name()
		if !hmac.Equal(mac(s.key, o, sum), given) {
			continue
		}
		f, err := s.open(path.Join(o.dir(), sum+fileSuffix))
		return f, digestPrefix + sum, err
	}
	return nil, "", ErrNotFound
}
