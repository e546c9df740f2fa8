package cache

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// tenant is what one namespace has here.
type tenant struct {
	name    string
	entries []*entry
	flights map[*flight]struct{} // those under way, dropped ones too
	index   int                  // in tenants.bySize
}

// tenants shares the capacity out.
type tenants struct {
	size   int // entries in all
	byName map[string]*tenant
	bySize bySize // the one with most entries first
}

func (ts *tenants) get(name string) *tenant {
	t := ts.byName[name]
	if t == nil {
		t = &tenant{name: name, flights: map[*flight]struct{}{}}
		ts.byName[name] = t
		heap.Push(&ts.bySize, t)
	}
	return t
}

func (ts *tenants) forget(t *tenant) {
	if len(t.entries) == 0 && len(t.flights) == 0 {
		delete(ts.byName, t.name)
		heap.Remove(&ts.bySize, t.index)
	}
}

func (ts *tenants) add(t *tenant, e *entry) {
	e.slot = len(t.entries)
	t.entries = append(t.entries, e)
	ts.size++
	heap.Fix(&ts.bySize, t.index)
}

func (ts *tenants) replace(t *tenant, old, e *entry) {
	e.slot = old.slot
	t.entries[e.slot] = e
}

func (ts *tenants) remove(e *entry) {
	t := ts.byName[e.key.Subject.Namespace()]
	last := len(t.entries) - 1
	t.entries[e.slot] = t.entries[last]
	t.entries[e.slot].slot = e.slot
	t.entries[last] = nil
	t.entries = t.entries[:last]
	ts.size--
	heap.Fix(&ts.bySize, t.index)
	ts.forget(t)
}

// victim is the entry to give up so that t can have one more. It belongs to the tenant with most entries if that has more than t,
// otherwise to t itself. Within the tenant it is an expired one if a few random tries find one, else a random one: when the working
// set is slightly too large, random eviction keeps more of it than LRU.
func (ts *tenants) victim(t *tenant, now time.Time) *entry {
	largest := ts.bySize[0]
	if len(largest.entries) <= len(t.entries) {
		largest = t
	}
	var e *entry
	for range 4 {
		e = largest.entries[rand.IntN(len(largest.entries))] //nolint:gosec // which entry goes is no secret.
		if !e.valid(now) {
			break
		}
	}
	return e
}

// bySize is a heap.Interface.
type bySize []*tenant

func (h *bySize) Len() int           { return len(*h) }
func (h *bySize) Less(i, j int) bool { return len((*h)[i].entries) > len((*h)[j].entries) }
func (h *bySize) Swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements [heap.Interface].
func (h *bySize) Push(x any) {
	t := x.(*tenant)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop implements [heap.Interface].
func (h *bySize) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}
