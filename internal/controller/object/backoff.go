package object

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bounds of the pause after a failure. They do not depend on the interval: an object with a short
// interval must not ask a service that refuses it every second.
const (
	firstPause = time.Second
	lastPause  = 2 * time.Minute
)

// rewordPause is how long a status stays as it is if only messages would change. Remote servers
// control some of the text: limit status writes. Each write stays in the cluster's database for
// minutes.
const rewordPause = time.Minute

// failures remembers the failures in a row and the last write of each object's status. The queue's
// own counter cannot be used: it would take a tenant's mistakes for errors of the controller.
type failures struct {
	mu   sync.Mutex // guards past
	past map[client.ObjectKey]past
}

type past struct {
	failed  int       // times in a row
	written time.Time // when the status was written last; zero if not since the start
	version string    // of the object after that write; empty if there was none
	doubt   bool      // whether a later write took place
}

// next counts another failure and returns the pause after it: twice the last one, up to the
// longest.
func (f *failures) next(object client.ObjectKey, longest time.Duration) time.Duration {
	pause := longest
	f.change(object, func(p *past) {
		if p.failed < doublings {
			pause = min(pause, firstPause<<p.failed)
		}
		p.failed++
	})
	return pause
}

// doublings is how often a pause is doubled: beyond a day, which is longer than all bounds.
const doublings = 17

// reset ends a row of failures.
func (f *failures) reset(object client.ObjectKey) {
	f.change(object, func(p *past) { p.failed = 0 })
}

// writing remembers that the status is being written. The API server may carry out a write whose
// request ends early.
func (f *failures) writing(object client.ObjectKey) {
	f.change(object, func(p *past) { p.doubt = true })
}

// wrote remembers that the status was written now, which made this version of the object.
func (f *failures) wrote(object client.ObjectKey, version string) {
	f.change(object, func(p *past) { p.written, p.version, p.doubt = time.Now(), version, false })
}

// outdated reports whether the status of this version of the object may be another than the one
// that was written last: memory may be behind.
func (f *failures) outdated(object client.ObjectKey, version string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.past[object]
	if p.doubt || p.version == "" {
		return p.doubt
	}
	order, err := resourceversion.CompareResourceVersion(version, p.version)
	return err != nil || order < 0
}

// fresh reports whether the status was written within the last rewordPause.
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
