package object

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// workers limits how many of a kind's workers one namespace may use. A tenant's server may be slow
// on purpose, and then occupies a worker until spec.timeout. Objects that have to wait are woken
// when a worker is free. So a large namespace does not keep the workers busy with retries. The zero
// value has no limit.
type workers struct {
	mu      sync.Mutex // guards the fields below; never held during I/O
	number  int        // number of workers; zero for no limit
	wake    func(reconcile.Request)
	all     int            // number of objects that are being worked on
	busy    map[string]int // number of objects of each namespace that are being worked on
	waiting map[string]map[reconcile.Request]struct{}
}

// start sets the number of workers, and the function that queues an object again.
func (w *workers) start(number int, wake func(reconcile.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number, w.wake = number, wake
}

// room returns how many more objects of the namespace may be reconciled now. A namespace may use
// half of the workers that no other namespace uses, rounded down, but always at least one. Of ten
// workers, the first namespace may use five, the second two, and three more namespaces one each.
func (w *workers) room(namespace string) int {
	own := w.busy[namespace]
	return max(1, (w.number-(w.all-own))/2) - own
}

// enter reports whether the object may be worked on. If it may, the caller must call leave
// afterwards. If not, the object will be woken later.
func (w *workers) enter(object reconcile.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == nil {
		w.busy, w.waiting = map[string]int{}, map[string]map[reconcile.Request]struct{}{}
	}
	namespace := object.Namespace
	if w.number > 0 && w.room(namespace) <= 0 {
		if w.waiting[namespace] == nil {
			w.waiting[namespace] = map[reconcile.Request]struct{}{}
		}
		w.waiting[namespace][object] = struct{}{}
		return false
	}
	w.stopWaiting(object)
	w.busy[namespace]++
	w.all++
	return true
}

func (w *workers) stopWaiting(object reconcile.Request) {
	delete(w.waiting[object.Namespace], object)
	if len(w.waiting[object.Namespace]) == 0 {
		delete(w.waiting, object.Namespace)
	}
}

func (w *workers) leave(object reconcile.Request) {
	woken, wake := w.left(object.Namespace)
	for _, object := range woken {
		wake(object)
	}
}

// left frees a worker of the namespace. It returns the waiting objects that may be worked on now.
// The free worker may serve any namespace, so these objects may be of any namespace.
func (w *workers) left(namespace string) (woken []reconcile.Request, wake func(reconcile.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.busy[namespace]--; w.busy[namespace] == 0 {
		delete(w.busy, namespace)
	}
	for namespace, objects := range w.waiting {
		room := w.room(namespace)
		for object := range objects {
			if room <= 0 {
				break
			}
			room--
			w.stopWaiting(object)
			woken = append(woken, object)
		}
	}
	return woken, w.wake
}
