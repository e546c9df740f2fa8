package source

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bounds of the pause after a failure.
const (
	firstPause = time.Second
	lastPause  = 2 * time.Minute
)

// failures counts what failed in a row. The queue's own counting cannot be used: it knows no interval, and takes what a tenant
// did wrong for the controller's errors.
type failures struct {
	mu    sync.Mutex // guards count
	count map[client.ObjectKey]int
}

// next is the pause after another failure: twice the last one, up to the object's interval and to lastPause.
func (f *failures) next(object client.ObjectKey, interval time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == nil {
		f.count = map[client.ObjectKey]int{}
	}
	pause := min(lastPause, max(interval, firstPause))
	if doublings := f.count[object]; doublings < 7 {
		pause = min(pause, firstPause<<doublings)
	}
	f.count[object]++
	return pause
}

func (f *failures) forget(object client.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.count, object)
}
