package ocirepository

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// tenants keeps one namespace from taking all workers: its registries may be slow on purpose. Objects that have to wait are woken
// when there is room, so that a namespace with many of them does not keep the workers busy with asking.
type tenants struct {
	mu      sync.Mutex // guards the fields below; never held during I/O
	workers int        // zero for any number
	wake    func(reconcile.Request)
	all     int            // objects that are being worked on
	busy    map[string]int // of them, by namespace
	waiting map[string]map[reconcile.Request]struct{}
}

// start says how many workers there are to share, and how to have one of them look at an object.
func (t *tenants) start(workers int, wake func(reconcile.Request)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.workers, t.wake = workers, wake
}

// room is how many more objects of the namespace may be worked on. A namespace may have half of the workers that other
// namespaces leave, so that a few together cannot take all, and one in any case.
func (t *tenants) room(namespace string) int {
	own := t.busy[namespace]
	return max(1, (t.workers-(t.all-own))/2) - own
}

// enter reports whether the object may be worked on. If so, leave must follow; if not, the object will be woken.
func (t *tenants) enter(request reconcile.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy == nil {
		t.busy, t.waiting = map[string]int{}, map[string]map[reconcile.Request]struct{}{}
	}
	namespace := request.Namespace
	if t.workers > 0 && t.room(namespace) <= 0 {
		if t.waiting[namespace] == nil {
			t.waiting[namespace] = map[reconcile.Request]struct{}{}
		}
		t.waiting[namespace][request] = struct{}{}
		return false
	}
	t.stopWaiting(request)
	t.busy[namespace]++
	t.all++
	return true
}

func (t *tenants) stopWaiting(request reconcile.Request) {
	delete(t.waiting[request.Namespace], request)
	if len(t.waiting[request.Namespace]) == 0 {
		delete(t.waiting, request.Namespace)
	}
}

func (t *tenants) leave(request reconcile.Request) {
	for _, woken := range t.left(request.Namespace) {
		t.wake(woken)
	}
}

// left takes those that there is room for now from those that wait. Room for one namespace may be room for another.
func (t *tenants) left(namespace string) []reconcile.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.busy[namespace]--; t.busy[namespace] == 0 {
		delete(t.busy, namespace)
	}
	var woken []reconcile.Request
	for namespace, requests := range t.waiting {
		room := t.room(namespace)
		for request := range requests {
			if room <= 0 {
				break
			}
			room--
			t.stopWaiting(request)
			woken = append(woken, request)
		}
	}
	return woken
}
