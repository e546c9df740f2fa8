package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// keySize is the size of a key in bytes: that of the hash it keys.
const keySize = 32

// Key is the secret that makes URLs unguessable. It does not print. Its zero value is no key.
type Key struct {
	reveal func() []byte
}

// String hides the key.
func (Key) String() string { return "[secret]" }

// GoString hides the key.
func (Key) GoString() string { return "[secret]" }

// IsZero reports whether k is no key.
func (k Key) IsZero() bool { return k.reveal == nil }

// NewKey takes 32 random bytes.
func NewKey(random []byte) (Key, error) {
	if len(random) != keySize {
		return Key{}, fmt.Errorf("%w key: %d bytes instead of %d", ErrInvalid, len(random), keySize)
	}
	own := [keySize]byte(random)
	if own == [keySize]byte{} {
		return Key{}, fmt.Errorf("%w key: it is all zeros", ErrInvalid)
	}
	return Key{reveal: func() []byte { return own[:] }}, nil
}

// ReadKey reads a file of exactly 32 random bytes, such as a mounted Secret ("head -c 32 /dev/urandom"). Replicas that serve the
// same artifacts, and a replica whose folder may be lost, need the same file to keep their URLs.
func ReadKey(file string) (Key, error) {
	f, err := os.Open(file) //nolint:gosec // the administrator's path
	if err != nil {
		return Key{}, fmt.Errorf("read the key of artifact URLs: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	raw, err := io.ReadAll(io.LimitReader(f, keySize+1))
	if err != nil {
		return Key{}, fmt.Errorf("read the key of artifact URLs: %w", err)
	}
	key, err := NewKey(raw)
	if err != nil {
		return Key{}, fmt.Errorf("the key of artifact URLs in %s: %w", filepath.Base(file), err)
	}
	return key, nil
}

const keyFile = ".key"

// ownKey returns the folder's key and makes it, readable by nobody else, if there is none. The name appears with its content or
// not at all, and never replaces another.
func ownKey(root *os.Root) (Key, error) {
	raw, err := root.ReadFile(keyFile)
	if err == nil {
		key, err := NewKey(raw)
		if err != nil {
			return Key{}, fmt.Errorf("the store's own %s: %w; remove it to have it made again", keyFile, err)
		}
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Key{}, fmt.Errorf("read the store's own key: %w", err)
	}
	raw = make([]byte, keySize)
	_, _ = rand.Read(raw) // never fails
	tmp := tempName()
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Key{}, fmt.Errorf("make the store's own key: %w", err)
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = root.Link(tmp, keyFile)
	}
	_ = root.Remove(tmp)
	switch {
	case errors.Is(err, fs.ErrExist):
		return ownKey(root) // another process was faster
	case err != nil:
		return Key{}, fmt.Errorf("make the store's own key: %w", err)
	}
	return NewKey(raw)
}
