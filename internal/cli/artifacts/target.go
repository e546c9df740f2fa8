package artifacts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// stagePrefix begins the name of a folder that is being filled.
const stagePrefix = ".lanyard-pull-"

// target is a folder that gets new content as a whole, or stays as it was. The content is first
// written to another folder of the same file system, the stage.
type target struct {
	path   string // absolute; if it exists, symbolic links are resolved
	stage  string
	exists bool
	empty  bool
}

// newTarget finds the target at path and makes its stage, the folder that is filled first. If the
// target has content, newTarget returns an error unless replace is true. The caller removes the
// stage.
func newTarget(path string, replace bool) (*target, error) {
	if err := staysBelow(path); err != nil {
		return nil, err
	}
	t, err := findTarget(path)
	if err != nil {
		return nil, fmt.Errorf("--path: %w", err)
	}
	if t.exists && !t.empty && !replace {
		return nil, fmt.Errorf("--path: %s is not empty; --replace replaces all that is in it", path)
	}
	parent := filepath.Dir(t.path)
	if t.empty { // keep the folder and fill it: it may be a mount, or the shell's working folder
		parent = t.path
	} else if err := os.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // the process's umask decides
		return nil, fmt.Errorf("--path: %w", err)
	}
	t.stage = filepath.Join(parent, stagePrefix+rand.Text())
	if err := os.Mkdir(t.stage, 0o755); err != nil { //nolint:gosec // the process's umask decides
		return nil, fmt.Errorf("--path: %w", err)
	}
	return t, nil
}

// findTarget checks whether there is a folder at path, and whether it is empty.
func findTarget(path string) (*target, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	resolved, err := filepath.EvalSymlinks(absolute)
	if errors.Is(err, fs.ErrNotExist) {
		return &target{path: absolute}, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(resolved)
	if err != nil {
		return nil, err
	}
	return &target{path: resolved, exists: true, empty: len(entries) == 0}, nil
}

// remove removes the stage, with what is left in it.
func (t *target) remove() { _ = os.RemoveAll(t.stage) } // after an error, the stage stays as a hidden folder, and nothing reads it

// publish makes the content of the folder t.stage the content of the target, at t.path.
func (t *target) publish() error {
	switch {
	case !t.exists:
		return os.Rename(t.stage, t.path)
	case t.empty:
		return t.fill()
	default:
		return t.swap()
	}
}

// fill moves the content of the stage into the target. Here the stage is a subfolder of the target.
func (t *target) fill() error {
	entries, err := os.ReadDir(t.stage)
	if err != nil {
		return err
	}
	for i, entry := range entries {
		if err := os.Rename(filepath.Join(t.stage, entry.Name()), filepath.Join(t.path, entry.Name())); err != nil {
			for _, moved := range entries[:i] {
				err = errors.Join(err, os.RemoveAll(filepath.Join(t.path, moved.Name())))
			}
			return err
		}
	}
	return nil
}

// swap puts the stage in the place of a target that has content, and removes the old content.
func (t *target) swap() error {
	info, err := os.Stat(t.path)
	if err != nil {
		return err
	}
	if err := os.Chmod(t.stage, info.Mode().Perm()); err != nil {
		return err
	}
	old := t.stage // exchange leaves the old content at the stage's path
	switch err := exchange(t.stage, t.path); {
	case errors.Is(err, errors.ErrUnsupported):
		if old, err = t.replace(); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("%w; if this is a mount, empty it, and pull without --replace", err)
	}
	if err := os.RemoveAll(old); err != nil {
		// Do not wrap the error: explainDisk would add that the folder is unchanged, but the folder
		// has changed.
		return fmt.Errorf("the artifact is in place, but what was there before could not be removed: %v", err) //nolint:errorlint // see above
	}
	return nil
}

// replace puts the stage in the target's place in two steps, for file systems that cannot exchange
// two folders. Between the steps, there is no folder at the path. replace returns where the old
// folder is now. If the second step fails, the old folder is moved back.
func (t *target) replace() (old string, err error) {
	old = t.stage + "-old"
	if err := os.Rename(t.path, old); err != nil {
		return "", fmt.Errorf("%w; if this is a mount, empty it, and pull without --replace", err)
	}
	if err := os.Rename(t.stage, t.path); err != nil {
		return "", errors.Join(err, os.Rename(old, t.path))
	}
	return old, nil
}
