package object

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// spender is an object whose events and status writes are limited.
type spender struct {
	kind, namespace, name string
	uid                   types.UID
}

// rate allows number at once. They come back one by one, each after every.
type rate struct {
	number int
	every  time.Duration
}

// budget limits what objects cause, for each object and for each namespace. The zero value is ready
// for use.
type budget struct {
	mu         sync.Mutex // guards all
	objects    allowance[spender]
	namespaces allowance[string]
	pruned     time.Time
}

// delays returns how long the object's and its namespace's budget stay spent; zero if they are not.
func (b *budget) delays(object spender, perObject, perNamespace rate) (ofObject, ofNamespace time.Duration) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects.delay(object, perObject, now), b.namespaces.delay(object.namespace, perNamespace, now)
}

// spend takes cost from the budgets of the object and of its namespace, also beyond what is left.
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

// allowance maps each key that has spent a part of its allowance to the time when the allowance is
// whole again.
type allowance[K comparable] map[K]time.Time

// delay returns how long the key's allowance stays spent.
func (a allowance[K]) delay(key K, r rate, now time.Time) time.Duration {
	untilWhole := max(0, a[key].Sub(now)) // a key that has spent nothing is not in the map
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

// prune forgets the keys whose allowance is whole.
func (a allowance[K]) prune(now time.Time) {
	maps.DeleteFunc(a, func(_ K, whole time.Time) bool { return !whole.After(now) })
}
