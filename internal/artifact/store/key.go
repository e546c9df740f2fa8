package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// keySize is the size of a key in bytes, equal to the size of the hash.
const keySize = 32

// key is the secret that makes URLs unguessable. Printing it does not reveal the secret.
type key struct {
	reveal func() []byte
}

// String hides the key.
func (key) String() string { return "[secret]" }

// GoString hides the key.
func (key) GoString() string { return "[secret]" }

// newKey makes a key from 32 random bytes.
func newKey(random []byte) (key, error) {
	if len(random) != keySize {
		return key{}, fmt.Errorf("%w key: %d bytes instead of %d", ErrInvalid, len(random), keySize)
	}
	own := [keySize]byte(random)
	if own == [keySize]byte{} {
		return key{}, fmt.Errorf("%w key: it is all zeros", ErrInvalid)
	}
	return key{reveal: func() []byte { return own[:] }}, nil
}

const keyFile = ".key"

// ownKey returns the folder's key. If there is no key, ownKey makes one that nobody else can read.
// The key's file appears with its whole content or not at all, and never replaces another file.
func ownKey(root *os.Root) (key, error) {
	raw, err := root.ReadFile(keyFile)
	if err == nil {
		own, err := newKey(raw)
		if err != nil {
			return key{}, fmt.Errorf("the store's own %s: %w; remove it to have it made again", keyFile, err)
		}
		return own, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return key{}, fmt.Errorf("read the store's own key: %w", err)
	}
	raw = make([]byte, keySize)
	_, _ = rand.Read(raw) // never fails
	tmp := tempName()
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return key{}, fmt.Errorf("make the store's own key: %w", err)
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = root.Link(tmp, keyFile)
	}
	_ = root.Remove(tmp)
	switch {
	case errors.Is(err, fs.ErrExist):
		return ownKey(root) // another process has made the key first
	case err != nil:
		return key{}, fmt.Errorf("make the store's own key: %w", err)
	}
	return newKey(raw)
}
