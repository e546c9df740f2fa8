package source

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bounds of the pause after a failure. They are the same for all intervals: a short one is no leave to ask a service that refuses at
// every second.
const (
	firstPause = time.Second
	lastPause  = 2 * time.Minute
)

// rewordPause is how long a status stays as it is when only the words of its messages would change. Part of these are of whoever the
// object names, who may choose others for each answer, and each write lies in the cluster's database for minutes.
const rewordPause = time.Minute

// failures remembers what objects went through. The queue's own counting cannot be used: it takes what a tenant did wrong for the
// controller's errors.
type failures struct {
	mu   sync.Mutex // guards past
	past map[client.ObjectKey]past
}

type past struct {
	failed  int       // times in a row
	written time.Time // when the status was written last; zero when not since the start
}

// next is the pause after another failure: twice the last one, up to lastPause.
func (f *failures) next(object client.ObjectKey) time.Duration {
	pause := lastPause
	f.change(object, func(p *past) {
		if p.failed < 7 {
			pause = min(pause, firstPause<<p.failed)
		}
		p.failed++
	})
	return pause
}

// over begins anew after a success.
func (f *failures) over(object client.ObjectKey) {
	f.change(object, func(p *past) { p.failed = 0 })
}

// wrote remembers that the status was written now.
func (f *failures) wrote(object client.ObjectKey) {
	f.change(object, func(p *past) { p.written = time.Now() })
}

// fresh reports whether the status was written a moment ago.
func (f *failures) fresh(object client.ObjectKey) (fresh bool) {
	f.change(object, func(p *past) { fresh = time.Since(p.written) < rewordPause })
	return fresh
}

// forget removes what is remembered of an object that is gone.
func (f *failures) forget(object client.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.past, object)
}

func (f *failures) change(object client.ObjectKey, change func(*past)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.past == nil {
		f.past = map[client.ObjectKey]past{}
	}
	p := f.past[object]
	change(&p)
	f.past[object] = p
}
