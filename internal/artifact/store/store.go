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
	// ErrFull is a write for which the store's bound or the namespace's bound has no room.
	ErrFull = errors.New("the artifact store is full")
	// ErrNamespaceFull is the ErrFull of the namespace's bound.
	ErrNamespaceFull = fmt.Errorf("%w for this namespace", ErrFull)
	// ErrVolume is a write for which the volume below has no room, although the bounds do.
	ErrVolume = errors.New("the artifact store's volume is full")
	// ErrNotFound is an artifact that is not in the store.
	ErrNotFound = errors.New("no such artifact")
	// ErrCorrupt is an artifact whose content is not what its name says.
	ErrCorrupt = errors.New("the artifact in the store is damaged")
)

// Options of a store. The zero value bounds nothing.
type Options struct {
	// MaxBytes bounds all artifacts together, in bytes; 0 means that only the disk does.
	MaxBytes int64
	// MaxNamespaceBytes bounds the artifacts of one namespace, in bytes, so that a tenant cannot
	// fill the store for the others; 0 means no bound.
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
	// Time is when it was stored last, UTC.
	Time time.Time

	note int64 // the length of its note
}

// Store is a folder of artifacts. It is safe for concurrent use.
type Store struct {
	root *os.Root
	key  key
	opts Options
	// create makes a file for writing; tests let it fail.
	create func(name string) (file, error)
	// keep is what Collect leaves; tests change it.
	keep retention

	// tree is held while names appear or go, so that Collect never removes a folder under a Put,
	// and the count is exact. Nothing but short operations on names happens under it.
	tree sync.Mutex

	mu   sync.Mutex // guards the fields below; never held during I/O
	used map[string]int64
	all  int64
}

// file is what Put writes to.
type file interface {
	io.WriteCloser
	Sync() error
}

const tempDir = ".tmp"

func tempName() string { return path.Join(tempDir, rand.Text()) }

// Open opens a store in a folder, which it makes if need be, sweeps what a killed process left
// behind and counts what is there.
func Open(dir string, opts Options) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the artifact store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the artifact store: %w", err)
	}
	s := &Store{root: root, opts: opts, keep: fluxRetention(), used: make(map[string]int64)}
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
			s.account(o.Namespace, f.Size+f.note)
		}
		return nil
	})
}

// Close releases the folder.
func (s *Store) Close() error { return s.root.Close() }

// Size returns the bytes of all artifacts.
func (s *Store) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func (s *Store) account(namespace string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all += n
	s.used[namespace] += n
	if s.used[namespace] == 0 {
		delete(s.used, namespace)
	}
}

// reserve takes room for n bytes or says which bound forbids it.
func (s *Store) reserve(namespace string, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit := s.opts.MaxBytes; limit > 0 && s.all+n > limit {
		return fmt.Errorf("%w: its limit is %d bytes", ErrFull, limit)
	}
	if limit := s.opts.MaxNamespaceBytes; limit > 0 && s.used[namespace]+n > limit {
		return fmt.Errorf("%w: the limit of namespace %s is %d bytes", ErrNamespaceFull, namespace, limit)
	}
	s.all += n
	s.used[namespace] += n
	return nil
}

// Put stores what write writes as an artifact of the object. The artifact appears at once and whole
// after write has returned nil, or not at all: an error of write is returned as it is, a lack of
// room is ErrFull or ErrVolume, and artifacts that were there before stay in every case. The same
// content twice is one artifact.
func (s *Store) Put(ctx context.Context, o Object, write func(io.Writer) error) (Stored, error) {
	o, err := o.check()
	if err != nil {
		return Stored{}, err
	}
	tmp := tempName()
	w := &writer{ctx: ctx, store: s, namespace: o.Namespace, hash: sha256.New()}
	if w.file, err = s.create(tmp); err != nil {
		return Stored{}, fmt.Errorf("store the artifact: %w", full(err))
	}
	err = w.finish(write(w))
	if err == nil {
		err = s.publish(o, tmp, w)
	}
	if err != nil {
		_ = s.root.Remove(tmp)
		s.account(o.Namespace, -w.n)
		return Stored{}, err
	}
	if err := s.syncDir(o.dir()); err != nil {
		return Stored{}, err // the artifact is there, but a loss of power could take it away again
	}
	sum := hex.EncodeToString(w.hash.Sum(nil))
	return Stored{
		Path: path.Join(o.dir(), sum+fileSuffix), Digest: digestPrefix + sum, Size: w.n, Time: time.Now().UTC(),
	}, nil
}

// publish gives the finished file its name.
func (s *Store) publish(o Object, tmp string, w *writer) error {
	s.tree.Lock()
	defer s.tree.Unlock()
	if err := s.root.MkdirAll(o.dir(), 0o700); err != nil {
		return fmt.Errorf("store the artifact: %w", full(err))
	}
	final := path.Join(o.dir(), hex.EncodeToString(w.hash.Sum(nil))+fileSuffix)
	before, err := s.root.Stat(final)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store the artifact: %w", err)
	}
	if err := s.root.Rename(tmp, final); err != nil {
		return fmt.Errorf("store the artifact: %w", full(err))
	}
	if before != nil {
		s.account(o.Namespace, -before.Size())
	}
	return nil
}

// syncDir makes a rename survive a loss of power.
func (s *Store) syncDir(dir string) error {
	d, err := s.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return fmt.Errorf("sync the artifact store: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync the artifact store: %w", full(err))
	}
	return nil
}

// writer counts, hashes and bounds what goes into a temporary file.
type writer struct {
	ctx       context.Context //nolint:containedctx // lives for one Put; io.Writer takes none
	store     *Store
	namespace string
	file      file
	hash      hash.Hash
	n         int64
	err       error
}

func (w *writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.err = context.Cause(w.ctx); w.err != nil {
		return 0, w.err
	}
	if w.err = w.store.reserve(w.namespace, int64(len(p))); w.err != nil {
		return 0, w.err
	}
	w.n += int64(len(p))
	n, err := w.file.Write(p)
	w.hash.Write(p[:n])
	if err != nil {
		w.err = fmt.Errorf("store the artifact: %w", full(err))
	}
	return n, w.err
}

// finish brings the content to the disk. An error of the file, which write may have hidden, wins.
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

// full names a lack of room below. What the system says besides, such as the name of a temporary
// file, is different each time.
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
	name, err := s.name(o, digest)
	if err != nil {
		return false
	}
	// One system call instead of one for each folder on the way. Names are checked, and the answer is
	// only yes or no, so nothing is lost.
	info, err := os.Lstat(filepath.Join(s.root.Name(), filepath.FromSlash(name)))
	return err == nil && info.Mode().IsRegular()
}

func (s *Store) name(o Object, digest string) (string, error) {
	o, err := o.check()
	if err != nil {
		return "", err
	}
	sum, err := checkDigest(digest)
	if err != nil {
		return "", err
	}
	return path.Join(o.dir(), sum+fileSuffix), nil
}

// Verify reads the object's artifact and compares its digest. It returns ErrNotFound or ErrCorrupt
// when it is not what it should be; storing it again mends both.
func (s *Store) Verify(ctx context.Context, o Object, digest string) error {
	name, err := s.name(o, digest)
	if err != nil {
		return err
	}
	f, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
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

// Remove removes all artifacts of the object. It is no error if there are none.
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

// remove removes files of one object and the folders that are then empty. The caller holds tree.
func (s *Store) remove(o Object, files []Stored) (freed int64, err error) {
	for _, f := range files {
		// RemoveAll, because it is content if there is nothing. The note goes first: none is left
		// without its artifact.
		note := strings.TrimSuffix(f.Path, fileSuffix) + noteSuffix
		if err := s.root.RemoveAll(note); err != nil {
			return freed, fmt.Errorf("remove the artifact's note: %w", err)
		}
		s.account(o.Namespace, -f.note)
		if err := s.root.RemoveAll(f.Path); err != nil {
			return freed + f.note, fmt.Errorf("remove the artifact: %w", err)
		}
		s.account(o.Namespace, -f.Size)
		freed += f.Size + f.note
	}
	s.prune(o.dir())
	return freed, nil
}

// prune removes a folder and those above it that are then empty. One that stays does no harm.
func (s *Store) prune(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if s.root.Remove(dir) != nil {
			return // not empty, or gone
		}
	}
}

// files lists an object's artifacts; what is no artifact is not ours.
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

// list reads a folder; one that does not exist is empty.
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

// descend walks the four levels of folders. Folders with other names, such as a volume's
// lost+found, are not ours and are not looked into.
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

// URLPath returns the path of the artifact's URL, beginning with a slash. Who knows it may fetch
// the artifact: it belongs into the object's status and nowhere else.
func (s *Store) URLPath(o Object, digest string) (string, error) {
	o, err := o.check()
	if err != nil {
		return "", err
	}
	sum, err := checkDigest(digest)
	if err != nil {
		return "", err
	}
	return urlPath(s.key, o, sum), nil
}
