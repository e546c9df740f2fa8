package ocirepository

import "sync"

// tenants keeps one namespace from taking all workers: its registries may be slow on purpose.
type tenants struct {
	most int // objects of one namespace at once; zero for any number

	mu   sync.Mutex // guards busy; never held during I/O
	busy map[string]int
}

// enter reports whether another object of the namespace may be worked on. If so, leave must follow.
func (t *tenants) enter(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.most > 0 && t.busy[namespace] >= t.most {
		return false
	}
	if t.busy == nil {
		t.busy = map[string]int{}
	}
	t.busy[namespace]++
	return true
}

func (t *tenants) leave(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[namespace]--; t.busy[namespace] == 0 {
		delete(t.busy, namespace)
	}
}
