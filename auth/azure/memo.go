package azure

import "github.com/puzpuzpuz/xsync/v4"

// memoSize bounds each memo; beyond it, it begins anew, so that no tenant fills it for good.
const memoSize = 4096

// memo remembers what keys were parsed to. A hit does not allocate. Failures are not remembered.
type memo[K comparable, V any] struct {
	fresh  func(K) (V, error)
	parsed *xsync.Map[K, *V]
}

func newMemo[K comparable, V any](fresh func(K) (V, error)) *memo[K, V] {
	return &memo[K, V]{fresh: fresh, parsed: xsync.NewMap[K, *V]()}
}

// parse returns what key is; read only.
func (m *memo[K, V]) parse(key K) (*V, error) {
	if v, ok := m.parsed.Load(key); ok {
		return v, nil
	}
	fresh, err := m.fresh(key)
	if err != nil {
		return nil, err
	}
	v := &fresh
	if m.parsed.Size() >= memoSize {
		m.parsed.Clear()
	}
	m.parsed.Store(key, v)
	return v, nil
}
