package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Errors of a store; compare with errors.Is.
var (
	// ErrFull means that a write would exceed the store's bound or the namespace's bound.
	ErrFull = errors.New("the artifact store is full")
	// ErrNamespaceFull means that a write would exceed the namespace's bound. It wraps ErrFull.
	ErrNamespaceFull = fmt.Errorf("%w for this namespace", ErrFull)
	// ErrShareFull means that a write would exceed the namespace's share of the store. The share
	// depends on the room that other namespaces leave. ErrShareFull wraps ErrFull.
	ErrShareFull = fmt.Errorf("%w for this namespace's share", ErrFull)
	// ErrVolume means that the underlying volume has no room for a write that the bounds allow.
	ErrVolume = errors.New("the artifact store's volume is full")
	// ErrNotFound means that an artifact is not in the store.
	ErrNotFound = errors.New("no such artifact")
	// ErrCorrupt means that an artifact's content does not match its digest.
	ErrCorrupt = errors.New("the artifact in the store is damaged")
)

// Options of a store. The zero value bounds nothing.
type Options struct {
	// MaxBytes bounds the total size of all artifacts, in bytes; 0 means no bound except the disk.
	// Each namespace may use a share of these bytes. The share shrinks while other namespaces
	// store more. If MaxBytes is 0, only MaxNamespaceBytes limits a namespace.
	MaxBytes int64
	// MaxNamespaceBytes bounds the artifacts of one namespace, in bytes, so that a tenant cannot
	// fill the store for other tenants; 0 means no bound.
	MaxNamespaceBytes int64
}

// Stored is an artifact in the store.
type Stored struct {
	// Path is the file's slash-separated path relative to the store.
	Path string
	// Digest is sha256:<hex> of the file.
	Digest string
	// Size is the file's length in bytes.
	Size int64
	// Time is when the artifact was last stored, UTC.
	Time time.Time

	note int64 // the length of the artifact's note
}

// sum returns the hex digits of the digest, without the prefix "sha256:".
func (f Stored) sum() string { return strings.TrimPrefix(f.Digest, digestPrefix) }

// Store is a folder of artifacts. It is safe for concurrent use.
type Store struct {
	root *os.Root
	key  key
	// create creates a file for writing; tests make it fail.
	create func(name string) (file, error)
	// keep says which artifacts Collect does not remove; tests change it.
	keep retention

	// tree is locked while names of files or folders appear or disappear. The lock keeps Collect
	// from removing a folder into which Put moves a file. It also keeps the count of bytes exact.
	// Content is read and written without the lock.
	tree sync.Mutex

	usage usage
}

// file is the file that Put writes.
type file interface {
	io.WriteCloser
	Sync() error
}

const tempDir = ".tmp"

func tempName() string { return path.Join(tempDir, rand.Text()) }

// Open opens a store in a folder, and creates the folder if necessary. It removes what a killed
// process left behind, and counts the artifacts.
func Open(dir string, opts Options) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the artifact store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the artifact store: %w", err)
	}
	s := &Store{root: root, keep: fluxRetention(), usage: usage{opts: opts, namespaces: map[string]*namespaceUsage{}}}
	s.create = func(name string) (file, error) {
		return root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err := s.prepare(); err != nil {
		_ = root.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) prepare() error {
	if err := s.root.RemoveAll(tempDir); err != nil {
		return fmt.Errorf("sweep the artifact store: %w", err)
	}
	if err := s.root.Mkdir(tempDir, 0o700); err != nil {
		return fmt.Errorf("prepare the artifact store: %w", err)
	}
	var err error
	if s.key, err = ownKey(s.root); err != nil {
		return err
	}
	return s.each(func(o Object, files []Stored) error {
		for _, f := range files {
			s.usage.count(o, f.sum(), f.Size+f.note)
		}
		return nil
	})
}

// Close closes the folder.
func (s *Store) Close() error { return s.root.Close() }

// Put calls write, and stores the output as an artifact of the object. The artifact appears as a
// whole, and only after write has returned nil. Put returns an error of write unchanged. If there
// is no room, the error is ErrFull or ErrVolume. Existing artifacts stay in every case. Content
// that is put twice is stored once.
func (s *Store) Put(ctx context.Context, o Object, write func(io.Writer) error) (Stored, error) {
	o, err := o.check()
	if err != nil {
		return Stored{}, err
	}
	w := &writer{ctx: ctx, store: s, owner: o, what: "artifact", tmp: tempName(), hash: sha256.New()}
	w.counts = w.tmp
	var sum string
	err = w.keep(write, func() (name string, err error) {
		sum = hex.EncodeToString(w.hash.Sum(nil))
		return sum + fileSuffix, w.failed(s.root.MkdirAll(o.dir(), 0o700))
	})
	if err != nil {
		return Stored{}, err
	}
	return Stored{
		Path: path.Join(o.dir(), sum+fileSuffix), Digest: digestPrefix + sum, Size: w.n, Time: time.Now().UTC(),
	}, nil
}

// syncDir makes a rename survive a loss of power.
func (s *Store) syncDir(dir string) error {
	d, err := s.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the folder has been removed in the meantime
	}
	if err != nil {
		return fmt.Errorf("sync the artifact store: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync the artifact store: %w", full(err))
	}
	return nil
}

// writer writes an artifact or its note, first to a temporary file. It counts and hashes the bytes,
// and enforces the bounds.
type writer struct {
	ctx   context.Context //nolint:containedctx // lives for one Put; io.Writer takes none
	store *Store
	owner Object
	what  string // what the file is, for error texts
	tmp   string // name of the temporary file
	// counts is a name. The store's usage counts the file's bytes under this name until the file
	// has its final name. For an artifact, counts is the name of the temporary file. For a note,
	// counts is the hex digest of the artifact that the note describes.
	counts string
	file   file
	hash   hash.Hash
	n      int64
	err    error
}

// keep calls write, and stores the output in the owner's folder. When the content is complete, keep
// locks Store.tree, calls place to get the file's name, and renames the file. Then it syncs the
// folder. If only this sync fails, the file has its name, but a loss of power could undo the
// rename. So keep returns an error.
func (w *writer) keep(write func(io.Writer) error, place func() (name string, err error)) (err error) {
	if w.file, err = w.store.create(w.tmp); err != nil {
		return w.failed(err)
	}
	if err = w.finish(write(w)); err == nil {
		err = w.publish(place)
	}
	if err != nil {
		_ = w.store.root.Remove(w.tmp)
		w.store.usage.count(w.owner, w.counts, -w.n)
		return err
	}
	return w.store.syncDir(w.owner.dir())
}

// publish renames the finished file to its final name.
func (w *writer) publish(place func() (name string, err error)) error {
	s := w.store
	s.tree.Lock()
	defer s.tree.Unlock()
	name, err := place()
	if err != nil {
		return err
	}
	final := path.Join(w.owner.dir(), name)
	before, err := s.root.Stat(final)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return w.failed(err)
	}
	if err := s.root.Rename(w.tmp, final); err != nil {
		return w.failed(err)
	}
	var replaced int64
	if before != nil {
		replaced = before.Size()
	}
	sum, _, _ := strings.Cut(name, ".")
	s.usage.rename(w.owner, w.counts, sum, w.n, replaced)
	return nil
}

// failed wraps an error, and adds what could not be stored: the artifact or its note. It returns
// nil for nil.
func (w *writer) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store the %s: %w", w.what, full(err))
}

func (w *writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.err = context.Cause(w.ctx); w.err != nil {
		return 0, w.err
	}
	if w.err = w.store.usage.reserve(w.owner, w.counts, w.n, int64(len(p))); w.err != nil {
		return 0, w.err
	}
	w.n += int64(len(p))
	n, err := w.file.Write(p)
	w.hash.Write(p[:n])
	w.err = w.failed(err)
	return n, w.err
}

// finish writes the content to the disk and closes the file. The argument is what the caller's
// write function returned. The error in w.err takes precedence, because that function may have
// ignored it.
func (w *writer) finish(err error) error {
	if w.err != nil {
		err = w.err
	}
	if err == nil {
		err = full(w.file.Sync())
	}
	if cerr := w.file.Close(); err == nil {
		err = full(cerr)
	}
	return err
}

// full returns ErrVolume for a system error that means that the volume has no room. The text of the
// result omits the name of the temporary file, so that the same failure always has the same text.
// full returns any other error unchanged.
func full(err error) error {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrVolume, errno)
		}
	}
	return err
}

// Has reports whether the object's artifact is in the store, without reading it.
func (s *Store) Has(o Object, digest string) bool {
	o, sum, err := o.artifact(digest)
	if err != nil {
		return false
	}
	// os.Lstat makes one system call; s.root.Lstat makes one for each folder of the path. os.Lstat
	// may follow a symbolic link out of the store. That does no harm here: the names are checked,
	// and the answer is only yes or no.
	info, err := os.Lstat(filepath.Join(s.root.Name(), filepath.FromSlash(o.dir()), sum+fileSuffix))
	return err == nil && info.Mode().IsRegular()
}

// Verify reads the object's artifact and compares its digest. It returns ErrNotFound if the
// artifact is missing, and ErrCorrupt if the digest differs. In both cases, a Put of the same
// content repairs the store.
func (s *Store) Verify(ctx context.Context, o Object, digest string) error {
	f, err := s.Open(o, digest)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
		return err
	}
	if err != nil {
		return fmt.Errorf("verify the artifact: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	h := sha256.New()
	buf := make([]byte, 64<<10)
	for {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("verify the artifact: %w", err)
		}
	}
	if digestPrefix+hex.EncodeToString(h.Sum(nil)) != digest {
		return ErrCorrupt
	}
	return nil
}

// Remove removes all artifacts of the object. It is not an error if there are none.
func (s *Store) Remove(o Object) error {
	o, err := o.check()
	if err != nil {
		return err
	}
	s.tree.Lock()
	defer s.tree.Unlock()
	files, err := s.files(o)
	if err != nil {
		return err
	}
	_, err = s.remove(o, files)
	return err
}

// remove removes files of one object, and folders that become empty. The caller must hold s.tree.
func (s *Store) remove(o Object, files []Stored) (freed int64, err error) {
	for _, f := range files {
		// RemoveAll does not fail on a missing file. Remove the note first, so that no note
		// outlives its artifact.
		note := strings.TrimSuffix(f.Path, fileSuffix) + noteSuffix
		if err := s.root.RemoveAll(note); err != nil {
			return freed, fmt.Errorf("remove the artifact's note: %w", err)
		}
		s.usage.count(o, f.sum(), -f.note)
		if err := s.root.RemoveAll(f.Path); err != nil {
			return freed + f.note, fmt.Errorf("remove the artifact: %w", err)
		}
		s.usage.count(o, f.sum(), -f.Size)
		freed += f.Size + f.note
	}
	s.prune(o.dir())
	return freed, nil
}

// prune removes a folder and its parents while they are empty. A folder that stays does no harm.
func (s *Store) prune(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if s.root.Remove(dir) != nil {
			return // the folder is not empty, or is already removed
		}
	}
}

// files lists an object's artifacts. It ignores all other files.
func (s *Store) files(o Object) ([]Stored, error) {
	entries, err := s.list(o.dir())
	if err != nil {
		return nil, err
	}
	var out []Stored
	for _, e := range entries {
		sum, ok := strings.CutSuffix(e.Name(), fileSuffix)
		if !ok || !isHex(sum) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the artifacts: %w", err)
		}
		out = append(out, Stored{
			Path: path.Join(o.dir(), e.Name()), Digest: digestPrefix + sum, Size: info.Size(), Time: info.ModTime().UTC(),
			note: s.noteSize(o, sum),
		})
	}
	return out, nil
}

// list reads a folder. A folder that does not exist counts as empty.
func (s *Store) list(dir string) ([]fs.DirEntry, error) {
	d, err := s.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the artifacts: %w", err)
	}
	defer d.Close() //nolint:errcheck // opened for reading
	entries, err := d.ReadDir(-1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed after it was opened
	}
	if err != nil {
		return nil, fmt.Errorf("list the artifacts: %w", err)
	}
	return entries, nil
}

// each calls fn for every object that has a folder.
func (s *Store) each(fn func(Object, []Stored) error) error {
	return s.descend(".", nil, fn)
}

// descend walks the four levels of folders. It ignores folders whose names are not valid at their
// level, such as a volume's lost+found.
func (s *Store) descend(dir string, parts []string, fn func(Object, []Stored) error) error {
	if len(parts) == 4 {
		o := Object{Kind: parts[0], Namespace: parts[1], Name: parts[2], UID: parts[3]}
		files, err := s.files(o)
		if err != nil {
			return err
		}
		return fn(o, files)
	}
	entries, err := s.list(dir)
	if err != nil {
		return err
	}
	isName := [4]func(string) bool{isKind, isLabel, isSubdomain, isUID}[len(parts)]
	for _, e := range entries {
		if !e.IsDir() || !isName(e.Name()) {
			continue
		}
		if err := s.descend(path.Join(dir, e.Name()), append(slices.Clip(parts), e.Name()), fn); err != nil {
			return err
		}
	}
	return nil
}

// URLPath returns the path of the artifact's URL, beginning with a slash. Whoever knows the path
// can fetch the artifact, so the path must be written only into the object's status.
func (s *Store) URLPath(o Object, digest string) (string, error) {
	o, sum, err := o.artifact(digest)
	if err != nil {
		return "", err
	}
	return urlPath(s.key, o, sum), nil
}
