// Package memo caches the results of parsing. Every call of auth.GetToken needs the parsed form
// of texts that tenants wrote. Such a text is rarely new, so most calls need no parsing.
package memo

import (
	"strings"

	"github.com/puzpuzpuz/xsync/v4"
)

// Size is the maximum number of keys in a memo. A full memo is emptied, so that the keys of one
// tenant do not occupy it forever.
const Size = 4096

// Memo caches the result of parsing each key, but no errors. A hit does not allocate. A Memo is
// safe for concurrent use.
type Memo[K comparable, V any] struct {
	fresh  func(K) (V, error)
	parsed *xsync.Map[K, *V]
}

// New makes an empty memo that parses keys with the given function.
func New[K comparable, V any](fresh func(K) (V, error)) *Memo[K, V] {
	return &Memo[K, V]{fresh: fresh, parsed: xsync.NewMap[K, *V]()}
}

// Parse returns the result for key. Callers must not change the result.
func (m *Memo[K, V]) Parse(key K) (*V, error) {
	if v, ok := m.parsed.Load(key); ok {
		return v, nil
	}
	key = own(key)
	fresh, err := m.fresh(key)
	if err != nil {
		return nil, err
	}
	v := &fresh
	if m.parsed.Size() >= Size {
		m.parsed.Clear()
	}
	m.parsed.Store(key, v)
	return v, nil
}

// own returns a copy of a key that is a string, and any other key unchanged. Without the copy, a
// string that is part of a longer string would keep the longer string in memory.
func own[K comparable](key K) K {
	if text, ok := any(&key).(*string); ok {
		*text = strings.Clone(*text)
	}
	return key
}

// Len returns the number of cached keys.
func (m *Memo[K, V]) Len() int { return m.parsed.Size() }
