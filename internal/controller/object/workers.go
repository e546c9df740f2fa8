package object

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/auth/share"
)

// patience is how long a reconciliation may occupy a worker. A reconciliation that takes longer
// goes on without the worker. The time is short, because another object may have to wait for the
// worker during all this time.
const patience = 500 * time.Millisecond

// lastingPerWorker is the maximum number of reconciliations without a worker, per worker of a kind.
// With 4 workers, up to 16 reconciliations may go on after they have lost their worker. The maximum
// bounds the memory that these reconciliations use.
const lastingPerWorker = 4

const (
	// crowdPause is the pause until the next attempt to take the worker from a reconciliation. An
	// attempt fails if too many other reconciliations already go on without a worker.
	crowdPause = 100 * time.Millisecond
	// longWork protects a reconciliation that has lost its worker. For this time, the
	// reconciliation is not ended for a namespace that has waiting objects but no reconciliation.
	// Work with the default spec.timeout, half of longWork, ends earlier by itself.
	longWork = 2 * time.Minute
)

// errCrowdedOut is the cause with which crowdOut cancels the context of [Kind.Act].
var errCrowdedOut = errors.New("another namespace needed the place of this work")

// workers decides which objects of a kind are reconciled now. A tenant's server may be slow on
// purpose, and the tenant may have many objects in several namespaces. So there are four rules:
//
//   - Each namespace has a share: half of the workers that no other namespace uses, but at least
//     one. A namespace may reconcile that many objects at once.
//   - A reconciliation uses a worker for [patience]. Then the reconciliation goes on without a
//     worker, and the worker is free. The reconciliation still counts for its own namespace.
//   - The waiting namespaces get free workers in turn.
//   - At most [lastingPerWorker] reconciliations for each worker go on without a worker. At this
//     bound, a further reconciliation keeps its worker until such a reconciliation has ended. The
//     method crowdOut can end such a reconciliation early.
//
// An object that has to wait is woken when it may be reconciled: it gets a worker and is queued
// again. The zero value has no limits.
//
// These rules do not prevent one attack. A tenant that has four namespaces for each worker, three
// more namespaces, and slow objects in each, can occupy all workers for [longWork].
type workers struct {
	mu         sync.Mutex // guards the fields below; never held during I/O
	number     int        // number of workers; zero for no limit
	wake       func(reconcile.Request)
	busy       int                   // number of workers in use
	lasting    int                   // number of reconciliations without a worker
	namespaces map[string]*namespace // by name: namespaces with objects that are reconciled or wait
	turns      []*namespace          // namespaces with waiting objects, in the order in which they get workers
}

// namespace has two groups of objects of one Kubernetes namespace. The objects in places may be
// reconciled now. The objects in waiting wait for a worker.
type namespace struct {
	name    string
	busy    int // number of objects with a worker
	places  map[reconcile.Request]*place
	waiting []reconcile.Request // the first object has waited longest
	waits   map[reconcile.Request]bool
}

// place is the right to reconcile one object now.
type place struct {
	of      *namespace
	lasting bool                    // the reconciliation goes on without a worker
	patient *time.Timer             // takes the worker away; nil until the reconciliation begins
	since   time.Time               // when the reconciliation lost its worker
	end     context.CancelCauseFunc // ends the work of the object; nil if it cannot be ended now
}

// start sets the number of workers, and the function that queues an object again.
func (w *workers) start(number int, wake func(reconcile.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number, w.wake = number, wake
}

// goroutines returns the maximum number of reconciliations at once with the given number of
// workers.
func goroutines(workers int) int { return workers * (1 + lastingPerWorker) }

// admits reports whether one more object of the namespace may be reconciled now; see [share.Room].
// A reconciliation that has lost its worker still counts for the share of its own namespace. It
// does not make the shares of other namespaces smaller.
func (w *workers) admits(n *namespace) bool {
	others, own := w.busy-n.busy, len(n.places)
	return w.number == 0 || w.busy < w.number && share.Room(w.number, others+own, own) > 0
}

// enter reports whether the object may be reconciled now. If enter returns false, the object waits
// and will be woken later. If enter returns true, the caller must call leave after the
// reconciliation.
func (w *workers) enter(object reconcile.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.of(object.Namespace)
	p := n.places[object] // not nil if the object was woken: serve has given it a worker
	if p == nil {
		if n.waits[object] || !w.admits(n) {
			w.wait(n, object)
			return false
		}
		p = w.take(n, object)
	}
	if w.number > 0 {
		p.patient = time.AfterFunc(patience, func() { w.outlasted(object, p) })
	}
	return true
}

// of returns the entry of a namespace, and makes the entry if necessary.
func (w *workers) of(name string) *namespace {
	if w.namespaces == nil {
		w.namespaces = map[string]*namespace{}
	}
	n := w.namespaces[name]
	if n == nil {
		n = &namespace{name: name, places: map[reconcile.Request]*place{}, waits: map[reconcile.Request]bool{}}
		w.namespaces[name] = n
	}
	return n
}

// take gives a free worker to an object, and returns the object's place. The caller must have asked
// admits before. After that, the caller must reconcile or wake the object.
func (w *workers) take(n *namespace, object reconcile.Request) *place {
	p := &place{of: n}
	n.places[object] = p
	n.busy++
	w.busy++
	return p
}

func (w *workers) wait(n *namespace, object reconcile.Request) {
	if n.waits[object] {
		return
	}
	if len(n.waiting) == 0 {
		w.turns = append(w.turns, n)
	}
	n.waiting = append(n.waiting, object)
	n.waits[object] = true
}

// leave removes the place of an object after its reconciliation. A place is the right to reconcile
// one object. Then leave wakes the waiting objects that may be reconciled now.
func (w *workers) leave(object reconcile.Request) {
	w.mu.Lock()
	if n := w.namespaces[object.Namespace]; n != nil && n.places[object] != nil {
		w.remove(n, object)
	}
	woken := w.serve()
	w.mu.Unlock()
	for _, object := range woken {
		w.wake(object)
	}
}

func (w *workers) remove(n *namespace, object reconcile.Request) {
	p := n.places[object]
	delete(n.places, object)
	if p.patient != nil {
		p.patient.Stop()
	}
	if p.lasting {
		w.lasting--
	} else {
		n.busy--
		w.busy--
	}
	if len(n.places) == 0 && len(n.waiting) == 0 {
		delete(w.namespaces, n.name)
	}
}

// serve gives the free workers to objects that wait, and returns these objects. The caller must
// wake them.
func (w *workers) serve() (woken []reconcile.Request) {
	for {
		next := slices.IndexFunc(w.turns, w.admits)
		if next < 0 {
			return woken
		}
		n := w.turns[next]
		w.turns = slices.Delete(w.turns, next, next+1)
		object := n.waiting[0]
		n.waiting = n.waiting[1:]
		delete(n.waits, object)
		if len(n.waiting) > 0 {
			w.turns = append(w.turns, n)
		}
		w.take(n, object)
		woken = append(woken, object)
	}
}

// outlasted takes the worker away from a reconciliation that has lasted longer than [patience]; p
// is the place of this reconciliation. If too many others go on without a worker, and crowdOut ends
// none of these, p keeps its worker. Then outlasted is called again after [crowdPause].
func (w *workers) outlasted(object reconcile.Request, p *place) {
	w.mu.Lock()
	var woken []reconcile.Request
	switch {
	case p.of.places[object] != p: // the reconciliation has just ended
	case w.lasting < w.number*lastingPerWorker || w.crowdOut(p.of):
		p.lasting, p.since = true, time.Now()
		p.of.busy--
		w.busy--
		w.lasting++
		woken = w.serve()
	default:
		p.patient.Reset(crowdPause)
	}
	w.mu.Unlock()
	for _, object := range woken {
		w.wake(object)
	}
}

// crowdOut ends the work of one reconciliation without a worker. Then a reconciliation of the given
// namespace can go on without its worker. Call crowdOut if the number of reconciliations without a
// worker is at its bound. crowdOut returns false if it has ended no work. It ends work in two
// cases:
//
//   - Some namespace has at least two more reconciliations without a worker than the given
//     namespace. Then crowdOut takes the namespace with most reconciliations without a worker. In
//     this namespace, it ends the work of the reconciliation that lost its worker last.
//   - Otherwise, some namespace has waiting objects, but none of its objects is reconciled. Then
//     crowdOut takes all namespaces. It ends the work of the reconciliation that lost its worker
//     first, if this was at least [longWork] ago.
func (w *workers) crowdOut(of *namespace) bool {
	var most *namespace
	var oldest *place
	for _, n := range w.namespaces {
		if most == nil || n.lasting() > most.lasting() {
			most = n
		}
		for _, p := range n.places {
			if p.lasting && p.end != nil && (oldest == nil || p.since.Before(oldest.since)) {
				oldest = p
			}
		}
	}
	victim := oldest
	switch idle := func(n *namespace) bool { return len(n.places) == 0 }; {
	case most.lasting() >= of.lasting()+2:
		victim = most.youngest()
	case oldest == nil || time.Since(oldest.since) < longWork || !slices.ContainsFunc(w.turns, idle):
		return false
	}
	if victim == nil {
		return false
	}
	victim.end(errCrowdedOut)
	victim.end = nil
	return true
}

// lasting returns how many of the namespace's reconciliations go on without a worker. A slow
// reconciliation gives its worker up after [patience].
func (n *namespace) lasting() int { return len(n.places) - n.busy }

// youngest looks at the namespace's reconciliations that have lost their workers and can be ended
// now. It returns the place of the reconciliation that lost its worker last. If there is no such
// reconciliation, the result is nil.
func (n *namespace) youngest() (last *place) {
	for _, p := range n.places {
		if p.lasting && p.end != nil && (last == nil || p.since.After(last.since)) {
			last = p
		}
	}
	return last
}

// endable sets the function that ends the work on an object: end cancels the context of [Kind.Act].
// Pass nil when Act has returned, because only Act can be ended.
func (w *workers) endable(object reconcile.Request, end context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.namespaces[object.Namespace]; n != nil && n.places[object] != nil {
		n.places[object].end = end
	}
}
