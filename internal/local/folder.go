package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Names of files and folders in a cloud's folder.
const (
	lockName      = "lanyard.lock"
	stateName     = "cloud.json"
	caName        = "cloud-ca.pem"
	artifactsName = "artifacts"
	logSuffix     = ".log"

	// The folder of a cluster without a name is the cloud's folder. The folder of any other cluster
	// is clusters/<name> in the cloud's folder. Each cluster's folder contains the folders
	// clusterName and programsName.
	clusterName  = "cluster"
	programsName = "programs"
	clustersName = "clusters"
)

// stopGrace bounds the wait for a control plane whose parent process was killed. Such a control
// plane stops by itself within ten seconds. The other five seconds are a reserve.
const stopGrace = 15 * time.Second

var (
	// ErrInUse says that another process runs a cloud in the folder.
	ErrInUse = errors.New("in use")
	// ErrForeign says that a folder holds files that Lanyard did not make.
	ErrForeign = errors.New("holds files that lanyard did not make")
)

// folder is a folder that belongs to this process until it is released.
type folder struct {
	path string
	lock *os.File
}

// claim locks a folder and removes the files of a former cloud, which may have crashed. If the
// folder also holds files that lanyard did not make, claim returns ErrForeign and removes nothing.
func claim(ctx context.Context, path string) (*folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read the folder: %w", err)
	}
	lockPath := filepath.Join(path, lockName)
	if _, err := os.Lstat(lockPath); len(entries) > 0 && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("folder %s %w; name another with --dir", path, ErrForeign)
	}
	lock, err := os.OpenFile(lockPath, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the folder is the caller's
	if err != nil {
		return nil, fmt.Errorf("open the folder's lock: %w", err)
	}
	f := &folder{path: path, lock: lock}
	if err := f.take(ctx); err != nil {
		_ = lock.Close() // the first error is returned
		return nil, err
	}
	return f, nil
}

func (f *folder) take(ctx context.Context) error {
	if err := flock(f.lock); err != nil {
		owner := "another process"
		if text, readErr := os.ReadFile(f.lock.Name()); readErr == nil && len(text) > 0 {
			owner = "process " + strings.TrimSpace(string(text))
		}
		return fmt.Errorf("folder %s is %w by %s; stop that (Ctrl-C), or name another folder with --dir", f.path, ErrInUse, owner)
	}
	if err := f.awaitClusters(ctx); err != nil {
		return err
	}
	if err := f.empty(); err != nil {
		return err
	}
	if err := f.lock.Truncate(0); err != nil {
		return fmt.Errorf("write the folder's lock: %w", err)
	}
	if _, err := f.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write the folder's lock: %w", err)
	}
	return nil
}

// awaitClusters waits until all clusters that an earlier run left in the folder have ended.
func (f *folder) awaitClusters(ctx context.Context) error {
	named, err := os.ReadDir(f.join(clustersName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find the former clusters: %w", err)
	}
	dirs := []string{f.join(clusterName)}
	for _, e := range named {
		dirs = append(dirs, f.join(clustersName, e.Name(), clusterName))
	}
	for _, dir := range dirs {
		if err := f.awaitCluster(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// awaitCluster waits until a former control plane has ended. If the process that started it was
// killed, the control plane stops by itself. It writes files until it has stopped.
func (f *folder) awaitCluster(ctx context.Context, dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0o600) //nolint:gosec // a path of our own
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the former control plane's lock: %w", err)
	}
	defer func() { _ = lock.Close() }()
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	if err := poll(ctx, pollInterval, func(context.Context) (bool, error) { return flock(lock) == nil, nil }); err != nil {
		return fmt.Errorf(
			"folder %s is %w by a control plane that an earlier run left; end that process, or name another folder with --dir: %w",
			f.path, ErrInUse, err)
	}
	return nil
}

// ours reports whether a cloud or a cluster makes a file or folder of this name.
func ours(name string) bool {
	switch name {
	case lockName, stateName, caName, artifactsName, clusterName, programsName, clustersName:
		return true
	}
	// Log files, and temporary files that a crash left.
	return strings.HasSuffix(name, logSuffix) || strings.HasPrefix(name, "."+stateName+"-") || name == caName+".tmp"
}

func (f *folder) empty() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fmt.Errorf("read the folder: %w", err)
	}
	for _, e := range entries {
		if !ours(e.Name()) {
			return fmt.Errorf("folder %s %w: %q; move that away, or name another folder with --dir", f.path, ErrForeign, e.Name())
		}
	}
	for _, e := range entries {
		if e.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(f.path, e.Name())); err != nil {
			return fmt.Errorf("empty the folder of the former run: %w", err)
		}
	}
	return nil
}

// release unlocks the folder. The files stay, for people to read.
func (f *folder) release() error { return f.lock.Close() }

func (f *folder) join(elements ...string) string {
	return filepath.Join(append([]string{f.path}, elements...)...)
}

// pollInterval is the pause between two checks of something on this machine.
const pollInterval = 50 * time.Millisecond

// poll calls a function once per interval until the function returns true or an error. If ctx ends,
// poll returns context.Cause(ctx).
func poll(ctx context.Context, interval time.Duration, ask func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if done, err := ask(ctx); done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
