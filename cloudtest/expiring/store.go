// Package expiring has a store for the sessions and tokens that a cloud has issued.
package expiring

import (
	"crypto/sha256"
	"maps"
	"time"
)

// keep is how long the store remembers an expired entry. During that time, a caller with the
// entry's secret gets the error "expired", not "unknown".
const keep = time.Hour

// sweepSize is the number of entries that a store must have before it deletes old entries.
const sweepSize = 1024

// Store maps secrets to values. It stores only the hash of a secret. It deletes a value some time
// after the value has expired. The zero value is empty. A Store is not safe for concurrent use.
type Store[V any] struct {
	entries map[[sha256.Size]byte]entry[V]
	sweepAt int
}

type entry[V any] struct {
	value   V
	expires time.Time
}

// Put stores a value under a secret, with the time when the value expires.
func (s *Store[V]) Put(secret string, value V, expires, now time.Time) {
	if s.entries == nil {
		s.entries, s.sweepAt = map[[sha256.Size]byte]entry[V]{}, sweepSize
	}
	if len(s.entries) >= s.sweepAt {
		maps.DeleteFunc(s.entries, func(_ [sha256.Size]byte, old entry[V]) bool { return old.expires.Add(keep).Before(now) })
		s.sweepAt = max(sweepSize, 2*len(s.entries))
	}
	s.entries[sha256.Sum256([]byte(secret))] = entry[V]{value, expires}
}

// Get returns the value that is stored under a secret. The value may have expired.
func (s *Store[V]) Get(secret string) (V, bool) {
	e, ok := s.entries[sha256.Sum256([]byte(secret))]
	return e.value, ok
}
