// Package expiring has the store in which a cloud remembers the sessions and tokens that it has
// given out.
package expiring

import (
	"crypto/sha256"
	"time"
)

// keep is how long an expired entry is remembered, so that its user hears "expired" and not
// "unknown".
const keep = time.Hour

// sweepSize is the size from which on a store looks for entries to forget.
const sweepSize = 1024

// Store remembers values by a secret. It keeps only the secret's hash. It forgets a value some time
// after the value has expired. Its zero value is empty. It is not safe for concurrent use.
type Store[V any] struct {
	entries map[[sha256.Size]byte]entry[V]
	sweepAt int
}

type entry[V any] struct {
	value   V
	expires time.Time
}

// Put remembers a value at the time now.
func (s *Store[V]) Put(secret string, value V, expires, now time.Time) {
	if s.entries == nil {
		s.entries, s.sweepAt = map[[sha256.Size]byte]entry[V]{}, sweepSize
	}
	if len(s.entries) >= s.sweepAt {
		for k, old := range s.entries {
			if old.expires.Add(keep).Before(now) {
				delete(s.entries, k)
			}
		}
		s.sweepAt = max(sweepSize, 2*len(s.entries))
	}
	s.entries[sha256.Sum256([]byte(secret))] = entry[V]{value, expires}
}

// Get returns the value of a secret. The value may have expired.
func (s *Store[V]) Get(secret string) (V, bool) {
	e, ok := s.entries[sha256.Sum256([]byte(secret))]
	return e.value, ok
}
