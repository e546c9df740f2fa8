package source

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Workers keep one namespace from taking all workers: what its objects name may be slow on purpose. All kinds of one
// controller share them: what a namespace has under way counts over all kinds, so that spreading over kinds gains a tenant
// nothing, and each kind keeps workers for the others. Objects that have to wait are woken when there is room, so that a
// namespace with many of them does not keep the workers busy with asking. The zero value is ready for use.
type Workers struct {
	mu      sync.Mutex // guards the fields below; never held during I/O
	number  int        // of the workers that each kind has; zero for any
	wake    map[string]func(reconcile.Request)
	all     int            // objects that are being worked on
	busy    map[string]int // of them, by namespace
	waiting map[string]map[task]struct{}
}

// task is the reconciliation of one object.
type task struct {
	kind    string
	request reconcile.Request
}

// start says how many workers the kind has, which is the same for all kinds, and how to have one of them look at an object.
func (w *Workers) start(kind string, number int, wake func(reconcile.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wake == nil {
		w.wake = map[string]func(reconcile.Request){}
	}
	w.number, w.wake[kind] = number, wake
}

// room is how many more objects of the namespace may be worked on. A namespace may have half of the workers that other
// namespaces leave, so that a few together cannot take all, and one in any case.
func (w *Workers) room(namespace string) int {
	own := w.busy[namespace]
	return max(1, (w.number-(w.all-own))/2) - own
}

// enter reports whether the object may be worked on. If so, leave must follow; if not, the object will be woken.
func (w *Workers) enter(t task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == nil {
		w.busy, w.waiting = map[string]int{}, map[string]map[task]struct{}{}
	}
	namespace := t.request.Namespace
	if w.number > 0 && w.room(namespace) <= 0 {
		if w.waiting[namespace] == nil {
			w.waiting[namespace] = map[task]struct{}{}
		}
		w.waiting[namespace][t] = struct{}{}
		return false
	}
	w.stopWaiting(t)
	w.busy[namespace]++
	w.all++
	return true
}

func (w *Workers) stopWaiting(t task) {
	delete(w.waiting[t.request.Namespace], t)
	if len(w.waiting[t.request.Namespace]) == 0 {
		delete(w.waiting, t.request.Namespace)
	}
}

func (w *Workers) leave(t task) {
	for _, woken := range w.left(t.request.Namespace) {
		woken()
	}
}

// left takes those that there is room for now from those that wait. Room for one namespace may be room for another.
func (w *Workers) left(namespace string) (woken []func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.busy[namespace]--; w.busy[namespace] == 0 {
		delete(w.busy, namespace)
	}
	for namespace, tasks := range w.waiting {
		room := w.room(namespace)
		for t := range tasks {
			if room <= 0 {
				break
			}
			room--
			w.stopWaiting(t)
			if wake := w.wake[t.kind]; wake != nil {
				woken = append(woken, func() { wake(t.request) })
			}
		}
	}
	return woken
}
