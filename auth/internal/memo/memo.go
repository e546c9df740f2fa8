// Package memo remembers what tenants' texts were parsed to: they are parsed on every call and seldom new.
package memo

import (
	"strings"

	"github.com/puzpuzpuz/xsync/v4"
)

// Size bounds each memo; beyond it, it begins anew, so that no tenant fills it for good.
const Size = 4096

// Memo remembers what keys were parsed to. A hit does not allocate. Failures are not remembered. It is safe for concurrent use.
type Memo[K comparable, V any] struct {
	fresh  func(K) (V, error)
	parsed *xsync.Map[K, *V]
}

// New makes an empty memo of fresh.
func New[K comparable, V any](fresh func(K) (V, error)) *Memo[K, V] {
	return &Memo[K, V]{fresh: fresh, parsed: xsync.NewMap[K, *V]()}
}

// Parse returns what key is; read only.
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

// own is a text that keeps no longer one, of which it is a part, in memory.
func own[K comparable](key K) K {
	if text, ok := any(&key).(*string); ok {
		*text = strings.Clone(*text)
	}
	return key
}

// Len is how many keys are remembered.
func (m *Memo[K, V]) Len() int { return m.parsed.Size() }
