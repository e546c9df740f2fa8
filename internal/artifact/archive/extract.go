package archive

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"path"
	"strings"
)

// Extract reads a tar archive (plain or gzip) up to its end. It writes the archive's folders and
// files below root, which should be empty. It has the same rules and refusals as Normalize. It
// makes no link, and writes no file twice or outside root. Files have the permissions 0644 or 0755,
// less the process's umask. After any error, root has a part of the archive and must be deleted.
func Extract(ctx context.Context, in io.Reader, root *os.Root, opts Options) (Summary, error) {
	n := newNormalizer(opts)
	n.out = &unpacker{root: root, content: n.written}
	return n.read(ctx, in, func() error { return nil })
}

// unpacker is a sink that writes into a folder.
type unpacker struct {
	root    *os.Root
	content *meter // writes to file, up to the limit
	file    *os.File
	parent  string // parent folder that was made last
}

// WriteHeader makes the folder, or creates the file.
func (u *unpacker) WriteHeader(hdr *tar.Header) error {
	if err := u.Close(); err != nil {
		return err
	}
	name, isDir := strings.CutSuffix(hdr.Name, "/")
	if isDir {
		return u.root.MkdirAll(name, 0o755)
	}
	if parent := path.Dir(name); parent != "." && parent != u.parent {
		if err := u.root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
		u.parent = parent
	}
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, os.FileMode(hdr.Mode).Perm()) //nolint:gosec // 0644 or 0755
	u.file, u.content.w = file, file
	return err
}

// Write writes to the current file.
func (u *unpacker) Write(p []byte) (int, error) { return u.content.Write(p) }

// Close closes the current file. Some disks report only now that they are full.
func (u *unpacker) Close() error {
	if u.file == nil {
		return nil
	}
	err := u.file.Close()
	u.file = nil
	return err
}
