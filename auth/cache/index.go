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
	byKey     []atomic.Pointer[entry] // the first entry of each bucket; entry.chain leads on
	bySubject []*entry                // the first entry of each bucket; entry.next leads on
}

// mostBuckets bounds what an index takes before anything is in it: 12 MiB. More entries than that
// share buckets.
const mostBuckets = 1 << 20

// newIndex makes an index for up to size entries.
func newIndex(size int) *index {
	buckets := max(1, min(size, mostBuckets))
	return &index{
		seed:      maphash.MakeSeed(),
		byKey:     make([]atomic.Pointer[entry], buckets),
		bySubject: make([]*entry, (buckets+1)/2), // fuller, since only changes of accounts read it
	}
}

// load is the entry of key, or nil. It may miss an entry that is being replaced; it never returns
// another key's.
func (x *index) load(key *auth.Key) *entry {
	for e := x.keyBucket(key).Load(); e != nil; e = e.chain.Load() {
		if e.uid == key.UID && e.key() == *key {
			return e
		}
	}
	return nil
}

// insert adds e before whatever has the same key, so that readers find e from now on.
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

// remove takes e out. Readers who are at e still find their way: e.chain and e.next stay.
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

// all yields the entries, without a lock: entries that come or go meanwhile may be left out. The
// caller may remove the entry that was yielded last.
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

// hash hashes the fields in which any number of keys may differ. The others have few values, so to
// hash them would only cost time.
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

// bucket spreads hashes evenly over n buckets.
func bucket(hash uint64, n int) uint64 {
	high, _ := bits.Mul64(hash, uint64(n)) //nolint:gosec // n is a length
	return high
}
