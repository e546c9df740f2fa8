package cache

import (
	"container/heap"
	"math/rand/v2"
)

// tenant has the resources that one namespace uses.
type tenant struct {
	name    string
	entries []*entry
	flights int // number of running flights
	// Flights that wait until the tenant has room, in order. A flight in the queue may have started
	// already, because another tenant also asked for it.
	queue []*flight
	index int // the index in tenants.bySize
}

// tenants divides the capacity among the tenants.
type tenants struct {
	size   int // number of entries of all tenants
	byName map[string]*tenant
	bySize bySize // a heap: the tenant with most entries first
}

// get returns the tenant with the given name. It makes the tenant if there is none.
func (ts *tenants) get(name string) *tenant {
	t := ts.byName[name]
	if t == nil {
		t = &tenant{name: name}
		ts.byName[name] = t
		heap.Push(&ts.bySize, t)
	}
	return t
}

// forget drops t if it has neither entries nor running flights. Without running flights, t's queue
// is empty. If t was dropped before, forget does nothing.
func (ts *tenants) forget(t *tenant) {
	if len(t.entries) == 0 && t.flights == 0 && ts.byName[t.name] == t {
		delete(ts.byName, t.name)
		heap.Remove(&ts.bySize, t.index)
	}
}

// start starts the exchange and counts it among the tenant's flights.
func (t *tenant) start(f *flight) {
	t.flights++
	f.counted = true
	f.start(t.name)
}

// startNext starts queued flights as long as the tenant has room.
func (t *tenant) startNext() {
	for t.flights < maxFlights && len(t.queue) > 0 {
		f := t.queue[0]
		t.queue[0] = nil
		t.queue = t.queue[1:]
		if f.begin != nil {
			t.start(f)
		}
	}
}

func (ts *tenants) add(t *tenant, e *entry) {
	e.tenant, e.slot = t, int32(len(t.entries)) //nolint:gosec // memory holds fewer tokens
	t.entries = append(t.entries, e)
	ts.size++
	heap.Fix(&ts.bySize, t.index)
}

func (ts *tenants) remove(e *entry) {
	t := e.tenant
	last := len(t.entries) - 1
	t.entries[e.slot] = t.entries[last]
	t.entries[e.slot].slot = e.slot
	t.entries[last] = nil
	t.entries = t.entries[:last]
	ts.size--
	heap.Fix(&ts.bySize, t.index)
	ts.forget(t)
}

// victim returns the entry to evict when t adds one. The entry belongs to the tenant with the most
// entries, or to t if no tenant has more than t. victim tries a few random entries, and returns the
// first without a valid token. If all have valid tokens, it returns the last one that it tried.
// When the working set is slightly too large, random eviction keeps more of it than LRU.
func (ts *tenants) victim(t *tenant, now instant) *entry {
	largest := ts.bySize[0]
	if len(largest.entries) <= len(t.entries) {
		largest = t
	}
	var e *entry
	for range 4 {
		//nolint:gosec // which entry goes is no secret
		e = largest.entries[rand.IntN(len(largest.entries))]
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
