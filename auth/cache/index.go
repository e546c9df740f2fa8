package cache

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"sync/atomic"

	"github.com/lanyard-dev/lanyard/auth"
)

// index finds entries: by key without a lock, and by subject under [Cache.mu]. Its size is fixed,
// so that no entry moves while somebody reads. All writes are made under [Cache.mu].
//
// A hash only chooses the bucket. The keys in a bucket are compared field by field, so that two
// keys with the same hash are still two keys.
type index struct {
	seed      maphash.Seed
	byKey     []atomic.Pointer[entry] // the first entry of each bucket; entry.chain is the next
	bySubject []*entry                // the first entry of each bucket; entry.next is the next
}

// mostBuckets is the largest length of byKey. With this length, byKey takes 8 MiB and bySubject
// takes 4 MiB. An index with more entries than buckets has several entries in a bucket.
const mostBuckets = 1 << 20

// newIndex makes an index for up to size entries.
func newIndex(size int) *index {
	buckets := max(1, min(size, mostBuckets))
	return &index{
		seed:  maphash.MakeSeed(),
		byKey: make([]atomic.Pointer[entry], buckets),
		// Half as many buckets are enough here. A hit does not search them. Only Invalidate and
		// InvalidateKeys do.
		bySubject: make([]*entry, (buckets+1)/2),
	}
}

// load returns the entry of key, or nil. If the entry is replaced while load reads the bucket, load
// may find neither the old entry nor the new one. It never returns the entry of another key.
func (x *index) load(key *auth.Key) *entry {
	for e := x.keyBucket(key).Load(); e != nil; e = e.chain.Load() {
		if e.uid == key.UID && e.key() == *key {
			return e
		}
	}
	return nil
}

// insert adds e in front of an older entry with the same key, so that readers find e from now on.
func (x *index) insert(e *entry) {
	key := e.key()
	first := x.keyBucket(&key)
	e.chain.Store(first.Load())
	first.Store(e)

	list := x.subjectBucket(e.subject)
	if e.next = *list; e.next != nil {
		e.next.prev = e
	}
	*list = e
}

// remove takes e out of the index. e.chain and e.next stay, so that a reader that has reached e can
// continue.
func (x *index) remove(e *entry) {
	key := e.key()
	link := x.keyBucket(&key)
	for link.Load() != e {
		link = &link.Load().chain
	}
	link.Store(e.chain.Load())

	if e.next != nil {
		e.next.prev = e.prev
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		*x.subjectBucket(e.subject) = e.next
	}
}

// of yields the entries of a subject. The caller may remove the entry that was yielded last.
func (x *index) of(who auth.Subject) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := *x.subjectBucket(who); e != nil; e = e.next {
			if e.subject == who && !yield(e) {
				return
			}
		}
	}
}

// all yields the entries without a lock. It may leave out entries that are added or removed while
// it runs. The caller may remove the entry that was yielded last.
func (x *index) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for i := range x.byKey {
			for e := x.byKey[i].Load(); e != nil; e = e.chain.Load() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

func (x *index) keyBucket(key *auth.Key) *atomic.Pointer[entry] {
	return &x.byKey[bucket(x.hash(key), len(x.byKey))]
}

// hash hashes only the key's fields that have many possible values. The other fields have few
// possible values, so hashing them would only cost time.
func (x *index) hash(key *auth.Key) uint64 {
	hash := maphash.String(x.seed, key.UID)
	for _, field := range [...]string{
		key.Subject.Name(), key.Subject.Namespace(),
		key.ProxyURL, key.Image, key.STSEndpoint, key.STSRegion, key.Scopes.String(), key.Audiences.String(),
		key.IdentityFingerprint,
	} {
		if field != "" {
			hash = bits.RotateLeft64(hash, 7) ^ maphash.String(x.seed, field)
		}
	}
	if key.Issuance != (auth.Issuance{}) {
		hash = bits.RotateLeft64(hash, 7) ^ maphash.Comparable(x.seed, key.Issuance)
	}
	return hash
}

func (x *index) subjectBucket(who auth.Subject) **entry {
	return &x.bySubject[bucket(maphash.Comparable(x.seed, who), len(x.bySubject))]
}

// bucket maps hashes evenly to n buckets.
func bucket(hash uint64, n int) uint64 {
	high, _ := bits.Mul64(hash, uint64(n)) //nolint:gosec // n is a length
	return high
}
