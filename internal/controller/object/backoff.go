package object

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The pause before a retry grows from firstPause to lastPause with each failure. This is so for
// failures that a condition shows, and for all other errors. For the former, View.RetryWithin can
// replace lastPause. The pauses do not depend on spec.interval. So an object with a short interval
// does not call a failing server every second.
const (
	firstPause = time.Second
	lastPause  = 2 * time.Minute
)

// errorPauses returns the pauses after errors that no condition shows. The pauses of
// controller-runtime grow to 17 minutes. That is too long for people who delete a namespace and
// wait.
func errorPauses() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, lastPause)
}

// rewordPause is the least time between two status writes if only messages have changed. Remote
// servers control some of the text, so they could cause many writes. Each write stays in the
// cluster's database for minutes.
const rewordPause = time.Minute

// failures counts each object's consecutive failures, and remembers the last write of its status.
// The work queue's own counter is not used: it would count a tenant's mistakes as errors of the
// controller.
type failures struct {
	mu   sync.Mutex // guards the field past
	past map[client.ObjectKey]past
}

type past struct {
	failed  int       // number of consecutive failures
	written time.Time // time of the last status write; zero if none since the start
	version string    // resourceVersion after the last status write; empty if none since the start
	doubt   bool      // true after a status write has begun, until a status write succeeds
}

// next counts another failure and returns the pause after it. The pause is twice the previous
// pause, up to the given maximum.
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

// doublings is the number of failures after which every pause has its maximum length. Doubled so
// often, firstPause would be more than a day, which is longer than any maximum.
const doublings = 17

// reset sets the object's number of consecutive failures to zero.
func (f *failures) reset(object client.ObjectKey) {
	f.change(object, func(p *past) { p.failed = 0 })
}

// writing records that a status write begins. The result of the write is unknown until
// [failures.wrote] is called. The API server may carry out a write even if the request is cut off.
func (f *failures) writing(object client.ObjectKey) {
	f.change(object, func(p *past) { p.doubt = true })
}

// wrote records that the status was written now. The version is the object's resourceVersion after
// the write.
func (f *failures) wrote(object client.ObjectKey, version string) {
	f.change(object, func(p *past) { p.written, p.version, p.doubt = time.Now(), version, false })
}

// outdated reports whether this version of the object, read from the cache, may be older than the
// last status write.
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

// fresh reports whether the last status write is less than [rewordPause] ago.
func (f *failures) fresh(object client.ObjectKey) (fresh bool) {
	f.change(object, func(p *past) { fresh = time.Since(p.written) < rewordPause })
	return fresh
}

// forget removes the entry of an object that is gone.
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
