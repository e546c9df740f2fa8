package source

import (
	"maps"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// Bounds of the events that objects make. An event lies in the cluster's database for an hour, and another one is made when an object
// fails in another way, which is the choice of whoever it names. What is not told stands in the conditions all the same.
const (
	objectNotices        = 10 // of one object at once
	objectNoticeEvery    = time.Minute
	namespaceNotices     = 100 // of all objects of a namespace at once
	namespaceNoticeEvery = 10 * time.Second
)

// notices says what may be told of objects. The zero value is ready for use.
type notices struct {
	mu         sync.Mutex // guards all
	objects    allowance[store.Object]
	namespaces allowance[string]
	pruned     time.Time
}

// take reports whether another event of the object may be made, and counts it.
func (n *notices) take(owner store.Object) bool {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.pruned) > time.Minute {
		n.pruned = now
		n.objects.prune(now)
		n.namespaces.prune(now)
	}
	return n.objects.take(owner, objectNotices, objectNoticeEvery, now) &&
		n.namespaces.take(owner.Namespace, namespaceNotices, namespaceNoticeEvery, now)
}

// allowance is when each key, having spent some of what it is allowed, has all of it again.
type allowance[K comparable] map[K]time.Time

// take spends one of so many, which come back one by one.
func (a *allowance[K]) take(key K, number int, every time.Duration, now time.Time) bool {
	if *a == nil {
		*a = allowance[K]{}
	}
	whole := now
	if later := (*a)[key]; later.After(now) {
		whole = later
	}
	if whole.Sub(now) > time.Duration(number-1)*every {
		return false
	}
	(*a)[key] = whole.Add(every)
	return true
}

// prune forgets who has spent nothing.
func (a allowance[K]) prune(now time.Time) {
	maps.DeleteFunc(a, func(_ K, whole time.Time) bool { return !whole.After(now) })
}
