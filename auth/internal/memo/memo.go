// Package memo remembers the results of parsing what tenants wrote, which happens on every call and is rarely anything new.
package memo

import (
	"strings"

	"github.com/puzpuzpuz/xsync/v4"
)

// Size bounds each memo. A full memo is emptied, so that no tenant can fill it for good.
const Size = 4096

// Memo remembers the result of parsing each key. A hit does not allocate. Failures are not remembered. It is safe for concurrent use.
type Memo[K comparable, V any] struct {
	fresh  func(K) (V, error)
	parsed *xsync.Map[K, *V]
}

// New makes an empty memo of the results of fresh.
func New[K comparable, V any](fresh func(K) (V, error)) *Memo[K, V] {
	return &Memo[K, V]{fresh: fresh, parsed: xsync.NewMap[K, *V]()}
}

// Parse returns the result for key, which callers must not change.
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

// own copies a string, which may be part of a longer one and would keep all of it in memory.
func own[K comparable](key K) K {
	if text, ok := any(&key).(*string); ok {
		*text = strings.Clone(*text)
	}
	return key
}

// Len is the number of keys that are remembered.
func (m *Memo[K, V]) Len() int { return m.parsed.Size() }
