package aws

import (
	"strings"

	"github.com/puzpuzpuz/xsync/v4"
)

// memoSize bounds each memo; beyond it, it begins anew, so that no tenant fills it for good.
const memoSize = 4096

// memo remembers what strings were parsed to. A hit does not allocate. Failures are not remembered.
type memo[V any] struct {
	fresh  func(string) (V, error)
	parsed *xsync.Map[string, *V]
}

func newMemo[V any](fresh func(string) (V, error)) *memo[V] {
	return &memo[V]{fresh: fresh, parsed: xsync.NewMap[string, *V]()}
}

// parse returns what s is; read only.
func (m *memo[V]) parse(s string) (*V, error) {
	if v, ok := m.parsed.Load(s); ok {
		return v, nil
	}
	fresh, err := m.fresh(s)
	if err != nil {
		return nil, err
	}
	v := &fresh
	if m.parsed.Size() >= memoSize {
		m.parsed.Clear()
	}
	m.parsed.Store(strings.Clone(s), v)
	return v, nil
}
