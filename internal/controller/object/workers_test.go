package object

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func asks(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

// crew is a set of workers for tests. The field woken lists the waiting objects that have got a
// worker. The method enterWoken removes these objects, and calls enter for each object.
type crew struct {
	workers

	queue sync.Mutex // guards woken
	woken []reconcile.Request
}

func newCrew(number int) *crew {
	c := &crew{}
	c.start(number, func(r reconcile.Request) {
		c.queue.Lock()
		defer c.queue.Unlock()
		c.woken = append(c.woken, r)
	})
	return c
}

// greedy calls enter for n objects of each namespace, one namespace after the other. For each
// namespace, the result has the number of objects for which enter returned true.
func (c *crew) greedy(n int, namespaces ...string) (entered []int) {
	for _, namespace := range namespaces {
		count := 0
		for i := range n {
			if c.enter(asks(namespace, i)) {
				count++
			}
		}
		entered = append(entered, count)
	}
	return entered
}

// enterWoken lets all woken objects enter, and returns how many objects of each namespace entered.
func (c *crew) enterWoken(t *testing.T) map[string]int {
	t.Helper()
	c.queue.Lock()
	defer c.queue.Unlock()
	entered := map[string]int{}
	for len(c.woken) > 0 {
		next := c.woken[0]
		c.woken = c.woken[1:]
		if !c.enter(next) {
			t.Errorf("%v was woken and has to wait", next)
		}
		entered[next.Namespace]++
	}
	return entered
}

// Each namespace gets a limited share of the workers. So one hostile namespace with slow servers
// cannot occupy all of several workers.
func TestSharesOfTheWorkers(t *testing.T) {
	for name, test := range map[string]struct {
		workers    int
		namespaces []string
		entered    string
	}{
		"one worker":            {1, []string{"a", "b"}, "[1 0]"},
		"two workers":           {2, []string{"a", "b", "c"}, "[1 1 0]"},
		"one greedy namespace":  {10, []string{"a"}, "[5]"},
		"four greedy ones":      {10, []string{"a", "b", "c", "d"}, "[5 2 1 1]"},
		"more than the workers": {10, []string{"a", "b", "c", "d", "e", "f"}, "[5 2 1 1 1 0]"},
		"no limit":              {0, []string{"a", "b"}, "[20 20]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := fmt.Sprint(newCrew(test.workers).greedy(20, test.namespaces...)); got != test.entered {
					t.Errorf("%s of the workers, want %s", got, test.entered)
				}
			})
		})
	}
}

// A hostile tenant with slow objects in several namespaces must not block other tenants: a slow
// reconciliation loses its worker after [patience].
func TestLastingWorkFreesItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(10)
		hostile := []string{"a", "b", "c", "d", "e", "f"}
		c.greedy(8, hostile...)
		if c.enter(asks("honest", 0)) {
			t.Fatal("there is an eleventh worker")
		}
		time.Sleep(patience)
		synctest.Wait()
		if n := c.enterWoken(t)["honest"]; n != 1 {
			t.Fatalf("the honest namespace has %d workers after %s", n, patience)
		}
		time.Sleep(time.Minute)
		for range 10 { // long enough for each hostile namespace to get its whole share
			synctest.Wait()
			c.enterWoken(t)
			time.Sleep(patience)
		}
		for _, name := range hostile {
			if n := len(c.namespaces[name].places); n != 5 {
				t.Errorf("%d objects of namespace %s are reconciled at once, want half of the workers", n, name)
			}
		}
		// All workers are free now, so an object of another namespace enters at once.
		if c.busy != 0 || !c.enter(asks("other", 0)) {
			t.Errorf("%d workers are busy with work that lasts", c.busy)
		}
	})
}

// The waiting namespaces get free workers in turn. The objects of one namespace get workers in the
// order in which they asked.
func TestWaitingNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(2)
		for _, object := range []reconcile.Request{asks("a", 0), asks("b", 0)} {
			if !c.enter(object) {
				t.Fatalf("%v has no worker", object)
			}
		}
		for range 3 { // an object that asks several times waits only once
			for i := range 3 {
				c.enter(asks("a", i+1))
			}
			for i := range 2 {
				c.enter(asks("c", i))
			}
		}
		var order []string
		for _, leaving := range []reconcile.Request{asks("b", 0), asks("a", 0), asks("c", 0), asks("a", 1), asks("c", 1), asks("a", 2), asks("a", 3)} {
			c.leave(leaving)
			for _, next := range c.woken {
				order = append(order, next.String())
			}
			c.enterWoken(t)
		}
		if want := []string{"c/0", "a/1", "c/1", "a/2", "a/3"}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
		if len(c.namespaces) != 0 || len(c.turns) != 0 || c.busy != 0 || c.lasting != 0 {
			t.Errorf("something is left: %+v", &c.workers)
		}
	})
}

// A worker is reserved for each woken object until the object has been reconciled. No other object
// gets this worker, even if the other object asks first.
func TestWokenObjectKeepsItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(1)
		c.enter(asks("a", 0))
		c.enter(asks("b", 0))
		c.leave(asks("a", 0))
		if c.enter(asks("c", 0)) {
			t.Error("another object took the worker")
		}
		time.Sleep(time.Hour)
		if entered := c.enterWoken(t); entered["b"] != 1 {
			t.Errorf("%v entered", entered)
		}
		c.leave(asks("b", 0))
		c.enterWoken(t)
		c.leave(asks("c", 0))
		if len(c.namespaces) != 0 || c.busy != 0 {
			t.Errorf("something is left: %+v", &c.workers)
		}
	})
}

// TestCrowdedOut starts 16 slow reconciliations: as many as may go on without a worker. Then
// another namespace starts a slow reconciliation. If each of the first namespaces has two of the
// 16, one reconciliation must end: the youngest of its namespace. If each has only one, none must
// end.
func TestCrowdedOut(t *testing.T) {
	type step struct {
		each   int    // reconciliations in each namespace; 16 in all namespaces together
		bound  bool   // the work cannot be ended now
		ended  string // name of the object whose work ends, such as "1"; empty if no work ends
		worker int    // number of busy workers afterwards
	}
	for name, test := range map[string]step{
		"two each":            {2, false, "1", 0},
		"one each":            {1, false, "", 1},
		"nothing to end":      {2, true, "", 1},
		"nothing to end, one": {1, true, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(4)
				var ended []reconcile.Request
				enter := func(object reconcile.Request) {
					if !c.enter(object) {
						t.Fatalf("%v has to wait", object)
					}
					if !test.bound {
						c.endable(object, func(cause error) {
							if !errors.Is(cause, errCrowdedOut) {
								t.Errorf("%v ended: %v", object, cause)
							}
							ended = append(ended, object)
						})
					}
					time.Sleep(patience)
					synctest.Wait()
				}
				for i := range 16 {
					enter(asks(fmt.Sprint("ns-", i/test.each), i%test.each))
				}
				enter(asks("new", 0))
				if c.busy != test.worker || len(ended) > 1 || (len(ended) == 1) != (test.ended != "") {
					t.Fatalf("ended %v, %d workers are busy", ended, c.busy)
				}
				if len(ended) == 1 {
					if ended[0].Name != test.ended {
						t.Errorf("ended %v, want the youngest of its namespace", ended)
					}
					return
				}
				c.leave(asks("ns-0", 0)) // now the object of namespace new may go on without its worker
				time.Sleep(crowdPause)
				synctest.Wait()
				if c.busy != 0 || c.lasting != 16 {
					t.Errorf("%d workers are busy, %d last", c.busy, c.lasting)
				}
			})
		})
	}
}

// If many namespaces have one slow object each, the oldest work ends after [longWork]. The work
// ends only if another namespace has a waiting object, and none of the objects of that namespace is
// reconciled.
func TestLongWorkIsCrowdedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(4)
		var ended []reconcile.Request
		for i := range 20 { // 16 go on without a worker, and 4 keep the 4 workers
			object := asks(fmt.Sprint("ns-", i), 0)
			if !c.enter(object) {
				t.Fatalf("%v has to wait", object)
			}
			c.endable(object, func(error) {
				ended = append(ended, object)
				go c.leave(object)
			})
			time.Sleep(patience)
			synctest.Wait()
		}
		c.enter(asks("ns-0", 1)) // waits, but another object of its namespace is reconciled
		time.Sleep(2 * longWork)
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatalf("ended %v, although no namespace waits with all its objects", ended)
		}
		c.enter(asks("new", 0))
		time.Sleep(crowdPause)
		synctest.Wait()
		if entered := c.enterWoken(t); entered["new"] != 1 || len(ended) == 0 || ended[0] != asks("ns-0", 0) {
			t.Errorf("%v entered, ended %v", entered, ended)
		}
	})
}

// Many goroutines reconcile objects at the same time. In the end all objects are done, and no entry
// is left in workers.
func TestWorkersConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &workers{}
		queue := make(chan reconcile.Request, 10000)
		c.start(4, func(r reconcile.Request) { queue <- r })
		ctx, cancel := context.WithCancel(t.Context())
		done := 0
		for range goroutines(4) {
			go func() {
				for {
					select {
					case <-ctx.Done():
						return
					case object := <-queue:
						if c.enter(object) {
							_, end := context.WithCancelCause(ctx)
							c.endable(object, end)
							time.Sleep(time.Duration(len(object.Name)) * 200 * time.Millisecond)
							c.endable(object, nil)
							end(nil)
							c.mu.Lock()
							done++
							c.mu.Unlock()
							c.leave(object)
						}
					}
				}
			}()
		}
		for i := range 1500 {
			queue <- asks(fmt.Sprint("ns-", i%30), i)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if done != 1500 || len(c.namespaces) != 0 || len(c.turns) != 0 || c.busy != 0 || c.lasting != 0 {
			t.Errorf("%d done; left is %+v", done, c)
		}
		cancel()
	})
}
