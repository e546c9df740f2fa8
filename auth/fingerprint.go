package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"slices"
	"sync"
)

// Fingerprint returns a keyed hash of attributes and of further values, for [Account].Fingerprint.
// The hash is base64url (RFC 4648 §5) of 128 bits. Within one process, equal arguments have equal
// fingerprints. Nobody can guess an attribute from its fingerprint, so arguments may be secret.
//
// The values are further inputs that decide the token. An example is the fingerprint of the source
// identity in a chain of identities. The number and order of the values count.
func Fingerprint(attributes map[string]string, values ...string) string {
	f := fingerprinters.Get().(*fingerprinter)
	defer fingerprinters.Put(f)
	return f.fingerprint(attributes, values)
}

// fingerprinters is a pool that reuses the state of the keyed hash. A new hash would hash the key
// again.
//
//nolint:gochecknoglobals // a pool of equal values holds no state.
var fingerprinters = sync.Pool{New: func() any { return newFingerprinter(processKey()) }}

// fingerprinter makes fingerprints with one key, one at a time.
type fingerprinter struct {
	mac   hash.Hash // to be reset before use
	names []string
	text  []byte // empty between uses
	sum   [sha256.Size]byte
}

func newFingerprinter(key []byte) *fingerprinter {
	return &fingerprinter{mac: hmac.New(sha256.New, key)}
}

// fingerprint hashes the length of each string before the string. So different arguments never give
// the same input to the hash.
func (f *fingerprinter) fingerprint(attributes map[string]string, values []string) string {
	for name := range attributes {
		f.names = append(f.names, name)
	}
	slices.Sort(f.names)
	f.text = binary.AppendUvarint(f.text, uint64(len(attributes)))
	for _, name := range f.names {
		f.add(name)
		f.add(attributes[name])
	}
	for _, value := range values {
		f.add(value)
	}
	f.mac.Reset()
	f.mac.Write(f.text)
	sum := f.mac.Sum(f.sum[:0])
	clear(f.text) // the text may contain static keys
	clear(f.names)
	f.names, f.text = f.names[:0], f.text[:0]
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

func (f *fingerprinter) add(s string) {
	f.text = binary.AppendUvarint(f.text, uint64(len(s)))
	f.text = append(f.text, s...)
}
