package object

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// workers keep one namespace from taking all workers of a kind. A server that a tenant names may be
// slow on purpose, until spec.timeout, and work that has begun is not stopped for others. Objects
// that have to wait are woken when there is room, so that a namespace with many of them does not
// keep the workers busy with asking. The zero value lets every object in.
type workers struct {
	mu      sync.Mutex // guards the fields below; never held during I/O
	number  int        // of the workers; zero for any
	wake    func(reconcile.Request)
	all     int            // objects that are being worked on
	busy    map[string]int // of them, by namespace
	waiting map[string]map[reconcile.Request]struct{}
}

// start sets the number of workers, and the function that has a worker look at an object.
func (w *workers) start(number int, wake func(reconcile.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number, w.wake = number, wake
}

// room returns how many more objects of the namespace may be reconciled now. A namespace may have
// half of the workers that other namespaces leave, even while the other workers are idle. Of ten,
// the first namespace has five, the second two, and three more one each. A namespace may always
// have one worker, so a single worker is never kept free for others.
func (w *workers) room(namespace string) int {
	own := w.busy[namespace]
	return max(1, (w.number-(w.all-own))/2) - own
}

// enter reports whether the object may be worked on. If so, leave must follow; if not, the object
// will be woken.
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

// left takes those that there is room for now from those that wait. Room for one namespace may be
// room for another.
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
