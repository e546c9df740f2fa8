package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// ErrInvalid is an object, digest or key that cannot be used.
var ErrInvalid = errors.New("invalid")

// Object is who an artifact belongs to. All fields are required; they are checked against Kubernetes' own rules for
// names, so that none of them can lead out of its folder.
type Object struct {
	// Kind is the object's kind; case does not matter ("OCIRepository").
	Kind string
	// Namespace is the object's namespace, an RFC 1123 label.
	Namespace string
	// Name is the object's name, an RFC 1123 subdomain.
	Name string
	// UID is the object's metadata.uid.
	UID string
}

var (
	kindPattern      = regexp.MustCompile(`^[a-z][a-z0-9]{0,62}$`)
	labelPattern     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	subdomainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	uidPattern       = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,62}[a-zA-Z0-9])?$`)
	hexPattern       = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// String returns <kind>/<namespace>/<name>.
func (o Object) String() string { return path.Join(strings.ToLower(o.Kind), o.Namespace, o.Name) }

// check returns the object with its kind in lower case, as paths and MACs use it.
func (o Object) check() (Object, error) {
	o.Kind = strings.ToLower(o.Kind)
	switch {
	case !kindPattern.MatchString(o.Kind):
		return Object{}, fmt.Errorf("%w kind %q", ErrInvalid, o.Kind)
	case !labelPattern.MatchString(o.Namespace):
		return Object{}, fmt.Errorf("%w namespace %q", ErrInvalid, o.Namespace)
	case len(o.Name) > 253 || !subdomainPattern.MatchString(o.Name):
		return Object{}, fmt.Errorf("%w name %q", ErrInvalid, o.Name)
	case !uidPattern.MatchString(o.UID):
		return Object{}, fmt.Errorf("%w UID %q", ErrInvalid, o.UID)
	}
	return o, nil
}

// dir is the object's folder, slash-separated and relative to the store.
func (o Object) dir() string { return path.Join(o.Kind, o.Namespace, o.Name, o.UID) }

const (
	digestPrefix = "sha256:"
	fileSuffix   = ".tar.gz"
)

// checkDigest returns the hex part of sha256:<hex>.
func checkDigest(digest string) (string, error) {
	sum, ok := strings.CutPrefix(digest, digestPrefix)
	if !ok || !hexPattern.MatchString(sum) {
		return "", fmt.Errorf("%w digest %q", ErrInvalid, digest)
	}
	return sum, nil
}

// mac is the unguessable part of an artifact's URL. Each field is preceded by its length, so that no two objects share
// an input.
func mac(k key, o Object, sum string) []byte {
	h := hmac.New(sha256.New, k.reveal())
	for _, field := range []string{"lanyard artifact URL v1", o.Kind, o.Namespace, o.Name, o.UID, digestPrefix + sum} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write([]byte(field))
	}
	return h.Sum(nil)
}

func urlPath(k key, o Object, sum string) string {
	return "/" + path.Join(o.Kind, o.Namespace, o.Name, hex.EncodeToString(mac(k, o, sum)), sum+fileSuffix)
}
