package store

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// usage counts the bytes of a store, and refuses writes for which there is no room.
//
// A namespace is charged for its files, and for the room to replace its largest artifact. During a
// replacement, the old and the new artifact exist together. So a source can always store a new
// version that is not larger than the old version, however little room other namespaces leave. This
// holds for one replacement at a time in each namespace.
type usage struct {
	opts Options

	mu         sync.Mutex // guards the fields below; never held during I/O
	all        int64      // bytes of all files
	charged    int64      // sum of what the namespaces are charged for, in bytes
	refused    uint64     // number of writes refused because the store, or the namespace's share, was full
	namespaces map[string]*namespaceUsage
}

// namespaceUsage counts the bytes that the objects of one namespace have in the store.
type namespaceUsage struct {
	bytes   int64 // bytes of all files
	lasting int64 // sum of the sizes of each object's largest artifact, with its note
	largest int64 // size of the largest artifact of all objects, with its note
	objects map[Object][]counted
}

// counted is the size of an artifact with its note, or of an unfinished artifact.
type counted struct {
	name string // hex digest of the artifact, or the name of the temporary file
	size int64  // bytes of the artifact and its note
}

// charge returns how many bytes the namespace is charged for.
func (n *namespaceUsage) charge() int64 { return max(n.bytes, n.lasting+n.largest) }

// share returns how many bytes a namespace may be charged for. The parameter limit is the bound of
// the store. The parameter others is what all other namespaces are charged for. Both are in bytes.
//
// The result is the larger of two numbers:
//   - (3/4 * limit - others) / 2: half of what is left of three quarters of the store. So large
//     namespaces leave the last quarter free.
//   - (limit - others) / 256: a small part of what is left of the whole store. So hundreds of
//     namespaces find room in the last quarter.
func share(limit, others int64) int64 {
	left := max(0, limit-others)
	return max((left-limit/4)/2, left/256)
}

// reserve counts n more bytes of a file that is being written, or returns an error that says which
// bound the bytes would exceed. The parameter "written" is the number of bytes of the file that are
// counted already. A namespace above its share may still replace a file by a file of the same size.
func (u *usage) reserve(o Object, file string, written, n int64) error {
	if n == 0 {
		return nil // an empty write always fits; for a namespace without files, check would find no counts
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var before int64
	if counts := u.namespaces[o.Namespace]; counts != nil {
		before = counts.charge()
	}
	u.add(o, file, n)
	err := u.check(o.Namespace, before, written+n)
	if err != nil {
		u.add(o, file, -n)
	}
	return err
}

// check returns an error if a namespace exceeds a bound after a write was counted. The parameter
// "before" is how many bytes the namespace was charged for before the write. A write that does not
// raise this number may exceed the share. The parameter "writing" is the number of counted bytes of
// the unfinished file. The text of the error leaves these bytes out.
func (u *usage) check(namespace string, before, writing int64) error {
	counts := u.namespaces[namespace]
	if limit := u.opts.MaxNamespaceBytes; limit > 0 && counts.bytes > limit {
		return fmt.Errorf("%w: the limit of namespace %s is %d bytes", ErrNamespaceFull, namespace, limit)
	}
	limit := u.opts.MaxBytes
	if limit <= 0 {
		return nil
	}
	if u.all > limit {
		u.refused++
		return fmt.Errorf("%w: its limit is %d bytes", ErrFull, limit)
	}
	charge := counts.charge()
	others := u.charged - charge
	own := share(limit, others)
	if charge <= before || charge <= own {
		return nil
	}
	u.refused++
	why := ""
	if others > limit/4 {
		why = ", because other namespaces fill the store"
	}
	return fmt.Errorf("%w: namespace %s has %d bytes, and its share is %d of %d bytes, with the room to replace its largest artifact%s",
		ErrShareFull, namespace, counts.bytes-writing, own, limit, why)
}

// count adds n to the counted size of an object's file. It checks no bound. A negative n reduces
// the size.
func (u *usage) count(o Object, file string, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.add(o, file, n)
}

// rename moves n counted bytes of an object from one name to another. Call rename after a file was
// renamed on the disk. The renamed file may have replaced an older file. The parameter "replaced"
// is the size of the older file, or 0 if there was no such file.
func (u *usage) rename(o Object, from, to string, n, replaced int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.add(o, from, -n)
	u.add(o, to, n-replaced)
}

// add adds n to the counted size of an object's file. A negative n reduces the size, but never
// below 0. The caller must hold u.mu.
func (u *usage) add(o Object, file string, n int64) {
	counts := u.namespaces[o.Namespace]
	if counts == nil {
		counts = &namespaceUsage{objects: map[Object][]counted{}}
		u.namespaces[o.Namespace] = counts
	}
	before := counts.charge()
	n = counts.add(o, file, n)
	u.all += n
	u.charged += counts.charge() - before
	if len(counts.objects) == 0 {
		delete(u.namespaces, o.Namespace)
	}
}

// add adds delta to the counted size of an object's file. A negative delta reduces the size, but
// never below 0. add returns the change of the size.
func (n *namespaceUsage) add(o Object, file string, delta int64) int64 {
	files := n.objects[o]
	before := largest(files)
	i := slices.IndexFunc(files, func(c counted) bool { return c.name == file })
	if i < 0 {
		i, files = len(files), append(files, counted{name: file})
	}
	delta = max(delta, -files[i].size)
	files[i].size += delta
	if files[i].size == 0 {
		files = slices.Delete(files, i, i+1)
	}
	n.objects[o] = files
	if len(files) == 0 {
		delete(n.objects, o)
	}
	after := largest(files)
	n.bytes += delta
	n.lasting += after - before
	switch {
	case after >= n.largest:
		n.largest = after
	case before == n.largest:
		n.largest = 0
		for _, files := range n.objects {
			n.largest = max(n.largest, largest(files))
		}
	}
	return delta
}

// largest returns the size of the largest of the files, or 0 for no files.
func largest(files []counted) int64 {
	var size int64
	for _, f := range files {
		size = max(size, f.size)
	}
	return size
}

// NamespaceSize says how many bytes of the store a namespace uses. These bytes include room that is
// reserved for the namespace.
type NamespaceSize struct {
	// Namespace is the name of the namespace.
	Namespace string
	// Bytes is what the namespace is charged for: its files, and room to replace its largest
	// artifact. The store reserves this room, because the old and the new artifact exist together
	// during a replacement.
	Bytes int64
}

// Largest returns the n namespaces that are charged for the most bytes, largest first. Show the
// names of the namespaces to the administrator only, and not to tenants.
func (s *Store) Largest(n int) []NamespaceSize {
	all := s.usage.sizes()
	slices.SortFunc(all, func(a, b NamespaceSize) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all[:min(n, len(all))]
}

func (u *usage) sizes() []NamespaceSize {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]NamespaceSize, 0, len(u.namespaces))
	for namespace, counts := range u.namespaces {
		all = append(all, NamespaceSize{namespace, counts.charge()})
	}
	return all
}

// Size returns the total size of all artifacts and notes, in bytes.
func (s *Store) Size() int64 {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	return s.usage.all
}

// Refused returns how many writes have failed since Open for lack of room. Either the store was
// full, or the namespace's share of the store. Refused does not count writes that exceed
// MaxNamespaceBytes.
func (s *Store) Refused() uint64 {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	return s.usage.refused
}
