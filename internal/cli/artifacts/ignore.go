package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// ignoreFile is the name of a file in the folder of --path. The file lists what stays out of
// the artifact.
const ignoreFile = ".sourceignore"

// contentFlags select the files on this machine that are the content of an artifact.
type contentFlags struct {
	path   string
	ignore []string
	sizes  sizeFlags
}

func (f *contentFlags) addTo(c *cobra.Command) {
	c.Flags().StringVarP(&f.path, "path", "f", "", "folder with the content, or a file (required)")
	c.Flags().StringSliceVar(&f.ignore, "ignore-paths", nil,
		"leave out these files of a folder, in the format of .gitignore; in place of the default (see above)")
	f.sizes.addTo(c)
	frame.CompleteNothing(c, "ignore-paths")
}

// check refuses a missing or unsafe --path, and other flags that do not fit the path.
func (f *contentFlags) check(j *job) error {
	if f.path == "" {
		return j.misused("--path: name the folder with the content, or a file")
	}
	if err := staysBelow(f.path); err != nil {
		return err
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("--path: %w", err)
	}
	if len(f.ignore) > 0 && !info.IsDir() {
		return j.misused("--ignore-paths: %s is no folder, and goes into the artifact whole; name the folder that has its files", f.path)
	}
	return f.sizes.check(j)
}

// staysBelow refuses a path below the working folder if a symbolic link leads out of the folder.
// The folder may be a checkout of a stranger's branch. With such a link, the command could push or
// replace files of the machine that runs a CI job.
func staysBelow(path string) error {
	if !filepath.IsLocal(path) {
		return nil // the user chose a path outside the working folder
	}
	here, err := os.OpenRoot(".")
	if err != nil {
		return fmt.Errorf("--path: %w", err)
	}
	defer here.Close() //nolint:errcheck // opened for reading
	if _, err := here.Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--path: %w; if a link leads out of the working folder, write where it leads to", err)
	}
	return nil
}

// patterns returns the patterns of --ignore-paths and of the folder's file .sourceignore.
func (f *contentFlags) patterns() (archive.Patterns, error) {
	text, err := readIgnoreFile(filepath.Join(f.path, ignoreFile))
	if err != nil {
		return archive.Patterns{}, fmt.Errorf("--path: %w", err)
	}
	all := strings.TrimSpace(string(text) + "\n" + strings.Join(f.ignore, "\n"))
	return archive.ParseOver(archive.DefaultPatterns(), "--ignore-paths and "+ignoreFile, all)
}

// maxIgnoreFile bounds the file of patterns, which may come from a stranger's branch.
const maxIgnoreFile = 1 << 20 // bytes

// readIgnoreFile returns the text of a file of patterns, or nothing if there is no such file. It
// refuses a file that is too long. It also refuses all but regular files: a device, for example,
// can be read without end.
func readIgnoreFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file with patterns", path)
	case info.Size() > maxIgnoreFile:
		return nil, fmt.Errorf("%s has %d bytes: a file with patterns has at most %d", path, info.Size(), maxIgnoreFile)
	}
	return os.ReadFile(path) //nolint:gosec // the folder that the caller names with --path
}
