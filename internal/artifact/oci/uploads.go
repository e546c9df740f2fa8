package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// uploadLife is how long an upload is remembered. Registries give up theirs after some hours or
// days.
const uploadLife = 7 * 24 * time.Hour

// maxLocation bounds the URL of an upload, in bytes.
const maxLocation = 8 << 10

// Uploads is a folder that remembers where uploads go on that broke off. It has one file for each;
// the name is a digest of repository and blob, and the content is the URL that the registry gave.
// Only URLs at the registry's own host are kept, which open nothing without a credential. A failure
// of the folder costs a new upload, and is no error. The folder may be one that others write into:
// what they put there has no effect. The zero value remembers nothing.
type Uploads struct {
	// Folder is made when it is needed, for its owner only; empty for none.
	Folder string
}

func (u Uploads) file(repo Repository, digest string) string {
	sum := sha256.Sum256([]byte(repo.String() + "\n" + digest))
	return filepath.Join(u.Folder, hex.EncodeToString(sum[:]))
}

// location returns the URL of an upload, empty for none. Of a file that its owner alone may read,
// who can read it is the owner: a URL of somebody else would have the content sent to where they
// want.
func (u Uploads) location(repo Repository, digest string) string {
	if u.Folder == "" {
		return ""
	}
	path := u.file(repo, digest)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() { // to open a pipe would wait
		return ""
	}
	file, err := os.Open(path) //nolint:gosec // a file of our own folder
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil || !isUpload(info) || info.Mode().Perm()&0o077 != 0 || info.Size() > maxLocation || time.Since(info.ModTime()) > uploadLife {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(file, maxLocation))
	if err != nil {
		return ""
	}
	return string(text)
}

// isUpload reports whether a file may be one of ours.
func isUpload(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && len(info.Name()) == hex.EncodedLen(sha256.Size)
}

// keep remembers the URL of an upload. A failure means that the upload is not continued.
func (u Uploads) keep(repo Repository, digest, location string) {
	if u.Folder == "" || len(location) > maxLocation || os.MkdirAll(u.Folder, 0o700) != nil {
		return
	}
	u.clean()
	path := u.file(repo, digest)
	_ = os.Remove(path)                                                      // the last one
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // follows no link
	if err != nil {
		return
	}
	_, err = file.WriteString(location)
	if errors.Join(err, file.Close()) != nil {
		_ = os.Remove(path) // else a part of the URL would count
	}
}

func (u Uploads) forget(repo Repository, digest string) {
	if u.Folder != "" {
		_ = os.Remove(u.file(repo, digest)) // it may not be there
	}
}

// clean removes what is too old to be continued.
func (u Uploads) clean() {
	entries, err := os.ReadDir(u.Folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && isUpload(info) && time.Since(info.ModTime()) > uploadLife {
			_ = os.Remove(filepath.Join(u.Folder, entry.Name()))
		}
	}
}
