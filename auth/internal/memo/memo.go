// Package memo remembers the results of parsing. Calls parse the text of tenants every time,
// although the text is rarely new.
package memo

import (
	"strings"

	"github.com/puzpuzpuz/xsync/v4"
)

// Size bounds the keys of each memo. A full memo is emptied, so that no tenant can fill it forever.
const Size = 4096

// Memo remembers the result of parsing each key. Errors are not remembered. A hit does not
// allocate. A Memo is safe for concurrent use.
type Memo[K comparable, V any] struct {
	fresh  func(K) (V, error)
	parsed *xsync.Map[K, *V]
}

// New makes an empty memo. Parse calls fresh for a key that is not remembered.
func New[K comparable, V any](fresh func(K) (V, error)) *Memo[K, V] {
	return &Memo[K, V]{fresh: fresh, parsed: xsync.NewMap[K, *V]()}
}

// Parse returns the result for key. Callers must not change it.
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

// own returns a copy of a key that is a string: the string may be part of a longer string, and
// would keep all of that in memory.
func own[K comparable](key K) K {
	if text, ok := any(&key).(*string); ok {
		*text = strings.Clone(*text)
	}
	return key
}

// Len returns the number of keys that are remembered.
func (m *Memo[K, V]) Len() int { return m.parsed.Size() }
