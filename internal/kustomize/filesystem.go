package kustomize

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// fileSystem shows the files of an archive to kustomize. The root of the archive is "/".
//
// The file system in memory of kustomize's own library refuses names with spaces, among others. Here
// the library's file system is empty, and has the methods that kustomize never calls for a build.
type fileSystem struct {
	filesys.FileSystem

	files *files
}

func newFileSystem(of *files) filesys.FileSystem {
	return fileSystem{FileSystem: filesys.MakeFsInMemory(), files: of}
}

// clean returns a path in the form of the names of files.
func clean(name string) string {
	if name = strings.TrimPrefix(path.Clean("/"+name), "/"); name != "" {
		return name
	}
	return "."
}

// CleanedAbs returns the folder and the file of a path. The file is empty if the path is a folder.
func (f fileSystem) CleanedAbs(name string) (folder filesys.ConfirmedDir, file string, err error) {
	switch name = clean(name); {
	case f.files.folders[name]:
		return filesys.ConfirmedDir(path.Join("/", name)), "", nil
	case f.files.isFile(name):
		return filesys.ConfirmedDir(path.Join("/", path.Dir(name))), path.Base(name), nil
	default:
		return "", "", notFound(name)
	}
}

// ReadFile returns the content of a file. The caller must not change the content.
func (f fileSystem) ReadFile(name string) ([]byte, error) {
	name = clean(name)
	content, found := f.files.content[name]
	if !found {
		return nil, notFound(name)
	}
	return content, nil
}

// Exists reports whether there is a file or a folder.
func (f fileSystem) Exists(name string) bool {
	name = clean(name)
	return f.files.isFile(name) || f.files.folders[name]
}

// IsDir reports whether a path is a folder.
func (f fileSystem) IsDir(name string) bool { return f.files.folders[clean(name)] }

func notFound(name string) error { return fmt.Errorf("%s: %w", quote(name), fs.ErrNotExist) }
