package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
)

// ErrInvalid means that an object, digest or key cannot be used.
var ErrInvalid = errors.New("invalid")

// Object is the owner of an artifact. All fields are required. They are checked against Kubernetes'
// own rules for names, so that no field can lead out of the object's folder.
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

// Limits of names, in bytes. Source: Kubernetes documentation, "Object Names and IDs". The limit of
// a UID is Lanyard's own.
const (
	maxLabel     = 63
	maxSubdomain = 253
	maxUID       = 64
)

// String returns <kind>/<namespace>/<name>.
func (o Object) String() string { return path.Join(strings.ToLower(o.Kind), o.Namespace, o.Name) }

// check checks the fields, and returns the object with its kind in lower case, as in paths and
// MACs.
func (o Object) check() (Object, error) {
	o.Kind = strings.ToLower(o.Kind)
	switch {
	case !isKind(o.Kind):
		return Object{}, fmt.Errorf("%w kind %q", ErrInvalid, o.Kind)
	case !isLabel(o.Namespace):
		return Object{}, fmt.Errorf("%w namespace %q", ErrInvalid, o.Namespace)
	case !isSubdomain(o.Name):
		return Object{}, fmt.Errorf("%w name %q", ErrInvalid, o.Name)
	case !isUID(o.UID):
		return Object{}, fmt.Errorf("%w UID %q", ErrInvalid, o.UID)
	}
	return o, nil
}

// Each use of the store checks names. With package regexp, the checks would take 5 % of the cost of
// a reconciliation that finds nothing new. So the functions below compare bytes.

func isKind(s string) bool {
	return len(s) <= maxLabel && isWord(s, isLower) && !isDigit(s[0]) && !strings.Contains(s, "-")
}

func isLabel(s string) bool { return len(s) <= maxLabel && isWord(s, isLower) }

func isSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isWord(label, isLower) {
			return false
		}
	}
	return len(s) <= maxSubdomain
}

func isUID(s string) bool {
	return len(s) <= maxUID && isWord(s, func(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' })
}

// isWord reports whether s is not empty and has only letters and inner hyphens. The second argument
// reports whether a byte counts as a letter.
func isWord(s string, letter func(c byte) bool) bool {
	for i := range len(s) {
		inner := 0 < i && i < len(s)-1
		if !letter(s[i]) && (s[i] != '-' || !inner) {
			return false
		}
	}
	return s != ""
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' || isDigit(c) }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(sum string) bool {
	for i := range len(sum) {
		if c := sum[i]; !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(sum) == hex.EncodedLen(sha256.Size)
}

// dir returns the object's folder, slash-separated and relative to the store.
func (o Object) dir() string { return path.Join(o.Kind, o.Namespace, o.Name, o.UID) }

const (
	digestPrefix = "sha256:"
	fileSuffix   = ".tar.gz"
)

// artifact checks the object and the digest of an artifact, sha256:<hex>. It returns the object
// with its kind in lower case, and the hex part of the digest.
func (o Object) artifact(digest string) (owner Object, sum string, err error) {
	if owner, err = o.check(); err != nil {
		return Object{}, "", err
	}
	sum, ok := strings.CutPrefix(digest, digestPrefix)
	if !ok || !isHex(sum) {
		return Object{}, "", fmt.Errorf("%w digest %q", ErrInvalid, digest)
	}
	return owner, sum, nil
}

// mac returns the unguessable part of an artifact's URL. In the hash's input, each field is
// preceded by its length, so that the inputs of two different objects always differ.
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
