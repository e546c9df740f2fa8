package object

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// spender identifies an object whose events and status writes are limited.
type spender struct {
	kind, namespace, name string
	uid                   types.UID
}

// rate limits actions. It allows a burst of actions, and then one more action per period. The field
// number is the size of the burst. The field every is the length of the period.
type rate struct {
	number int
	every  time.Duration
}

// budget limits the events, or the status writes, of each object and of each namespace. The zero
// value is ready for use.
type budget struct {
	mu         sync.Mutex // guards all
	objects    allowance[spender]
	namespaces allowance[string]
	pruned     time.Time
}

// delays returns how long the object's budget and its namespace's budget stay used up; zero for a
// budget that is not used up.
func (b *budget) delays(object spender, perObject, perNamespace rate) (ofObject, ofNamespace time.Duration) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects.delay(object, perObject, now), b.namespaces.delay(object.namespace, perNamespace, now)
}

// spend subtracts the cost of an action from the budgets of the object and of its namespace. The
// cost may be more than a budget has left. The next action then has to wait longer.
func (b *budget) spend(object spender, cost int, perObject, perNamespace rate) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.pruned) > time.Minute {
		b.pruned = now
		b.objects.prune(now)
		b.namespaces.prune(now)
	}
	b.objects.spend(object, cost, perObject, now)
	b.namespaces.spend(object.namespace, cost, perNamespace, now)
}

// allowance maps a key to the time when the key's budget is full again. A key that has spent
// nothing has no entry.
type allowance[K comparable] map[K]time.Time

// delay returns how long the key has to wait until it may spend again; zero if it may spend now.
func (a allowance[K]) delay(key K, r rate, now time.Time) time.Duration {
	untilWhole := max(0, a[key].Sub(now)) // zero time for a key without an entry
	return max(0, untilWhole-time.Duration(r.number-1)*r.every)
}

func (a *allowance[K]) spend(key K, cost int, r rate, now time.Time) {
	if *a == nil {
		*a = allowance[K]{}
	}
	whole := now
	if later := (*a)[key]; later.After(now) {
		whole = later
	}
	(*a)[key] = whole.Add(time.Duration(cost) * r.every)
}

// prune removes the keys whose budget is full again.
func (a allowance[K]) prune(now time.Time) {
	maps.DeleteFunc(a, func(_ K, whole time.Time) bool { return !whole.After(now) })
}
