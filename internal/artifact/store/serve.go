package store

import (
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxUIDs bounds the folders of one name that are looked at for a request; Collect keeps them at
// about one.
const maxUIDs = 16

// Open opens the object's artifact, or returns ErrNotFound. Its content is not compared with its
// digest; see Verify. The caller closes the file.
func (s *Store) Open(o Object, digest string) (*os.File, error) {
	name, err := s.name(o, digest)
	if err != nil {
		return nil, err
	}
	return s.open(name)
}

// ByURLPath opens the artifact that a URL's path from URLPath means and returns its digest. Every
// path that is not exactly such a path of an artifact that exists is ErrNotFound, whatever is wrong
// with it. The caller closes the file.
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
	// The UID stands in no URL, and any valid one serves to check the others.
	o, err := Object{Kind: parts[0], Namespace: parts[1], Name: parts[2], UID: "0"}.check()
	if err != nil || o.Kind != parts[0] {
		return nil, "", ErrNotFound
	}
	entries, err := s.list(path.Dir(o.dir()))
	if err != nil {
		return nil, "", err
	}
	if len(entries) == 0 {
		// As much work as for an object that exists.
		_ = hmac.Equal(mac(s.key, o, sum), given)
	}
	for _, e := range entries[:min(len(entries), maxUIDs)] {
		o.UID = e.Name()
		if !hmac.Equal(mac(s.key, o, sum), given) {
			continue
		}
		f, err := s.root.Open(path.Join(o.dir(), sum+fileSuffix))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, "", ErrNotFound
		}
		return f, digestPrefix + sum, err
	}
	return nil, "", ErrNotFound
}
