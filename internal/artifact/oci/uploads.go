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

// uploadLife is how long an upload is remembered. Registries give up uploads after some hours or
// days.
const uploadLife = 7 * 24 * time.Hour

// maxLocation is the maximum length of an upload's URL, in bytes.
const maxLocation = 8 << 10

// Uploads is a folder with the URLs of uploads that broke off. Each upload has one file. The file's
// name is a digest of repository and blob, and its content is the registry's URL. Only URLs at the
// registry's own host are stored; they give no access without a credential. Files that other users
// write into the folder are ignored. If the folder cannot be read or written, a new upload begins.
// The zero value remembers nothing.
type Uploads struct {
	// Folder is created when it is needed, with permissions only for its owner. Empty means no
	// folder.
	Folder string
}

func (u Uploads) file(repo Repository, digest string) string {
	sum := sha256.Sum256([]byte(repo.String() + "\n" + digest))
	return filepath.Join(u.Folder, hex.EncodeToString(sum[:]))
}

// location returns the URL of an upload; empty if there is none. Another user could store a URL
// that sends the content elsewhere. So location ignores a file with permissions for anyone but its
// owner. It need not check the owner: only root can open another user's private file.
func (u Uploads) location(repo Repository, digest string) string {
	if u.Folder == "" {
		return ""
	}
	path := u.file(repo, digest)
	// Opening a named pipe would block, so open only regular files.
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	file, err := os.Open(path) //nolint:gosec // a file of our own folder
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil || !isUpload(info) || info.Mode().Perm()&0o077 != 0 ||
		info.Size() > maxLocation || time.Since(info.ModTime()) > uploadLife {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(file, maxLocation))
	if err != nil {
		return ""
	}
	return string(text)
}

// isUpload reports whether a file may be a file of Uploads.
func isUpload(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && len(info.Name()) == hex.EncodedLen(sha256.Size)
}

// keep stores the URL of an upload. If that fails, a later Push cannot continue this upload.
func (u Uploads) keep(repo Repository, digest, location string) {
	if u.Folder == "" || len(location) > maxLocation || os.MkdirAll(u.Folder, 0o700) != nil {
		return
	}
	u.clean()
	path := u.file(repo, digest)
	_ = os.Remove(path)                                                      // an earlier file
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // follows no link
	if err != nil {
		return
	}
	_, err = file.WriteString(location)
	if errors.Join(err, file.Close()) != nil {
		_ = os.Remove(path) // the file may have only a part of the URL
	}
}

func (u Uploads) forget(repo Repository, digest string) {
	if u.Folder != "" {
		_ = os.Remove(u.file(repo, digest)) // the file may not exist
	}
}

// clean removes uploads that are too old to be continued.
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
