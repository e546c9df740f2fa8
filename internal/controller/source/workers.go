package source

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// workers keep one namespace from taking all workers of a kind: what its objects name may be slow on purpose, until spec.timeout, and
// nobody who has begun is stopped for another. Objects that have to wait are woken when there is room, so that a namespace with many of
// them does not keep the workers busy with asking. The zero value lets everybody in.
type workers struct {
	mu      sync.Mutex // guards the fields below; never held during I/O
	number  int        // of the workers; zero for any
	wake    func(reconcile.Request)
	all     int            // objects that are being worked on
	busy    map[string]int // of them, by namespace
	waiting map[string]map[reconcile.Request]struct{}
}

// start says how many workers there are, and how to have one of them look at an object.
func (w *workers) start(number int, wake func(reconcile.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number, w.wake = number, wake
}

// room is how many more objects of the namespace may be worked on. A namespace may have half of the workers that other namespaces
// leave, also while these have nothing to do: of ten, one alone has five, the next two, and three more one each. It may have one in
// any case, so that of a single worker nothing is kept for others.
func (w *workers) room(namespace string) int {
	own := w.busy[namespace]
	return max(1, (w.number-(w.all-own))/2) - own
}

// enter reports whether the object may be worked on. If so, leave must follow; if not, the object will be woken.
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

// left takes those that there is room for now from those that wait. Room for one namespace may be room for another.
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
