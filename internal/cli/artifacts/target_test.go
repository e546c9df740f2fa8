package artifacts

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestReplacedAtOnce checks that, while pulls replace a folder, the path always has either the old
// folder or the new folder.
func TestReplacedAtOnce(t *testing.T) {
	path := folder(t, map[string]string{"app.yaml": "0"})
	var readers sync.WaitGroup
	done := make(chan struct{})
	missing := 0
	readers.Go(func() {
		for {
			if _, err := os.Stat(path); err != nil {
				missing++
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range 500 {
		next, err := newTarget(path, true)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(filepath.Join(next.stage, "app.yaml"), []byte("1"), 0o600))
		must.Succeed(t, next.publish())
		next.remove()
	}
	close(done)
	readers.Wait()
	if missing > 0 {
		t.Errorf("%d times there was nothing", missing)
	}
	if left := leftovers(t, filepath.Dir(path)); len(left) > 0 {
		t.Errorf("beside the folder: %v", left)
	}
}

// TestReplacedInSteps checks that a folder is also replaced on file systems that cannot exchange
// two folders.
func TestReplacedInSteps(t *testing.T) {
	path := folder(t, map[string]string{"app.yaml": "0"})
	next, err := newTarget(path, true)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(next.stage, "app.yaml"), []byte("1"), 0o600))
	old, err := next.replace()
	must.Succeed(t, err)
	if got := tree(t, path); got != `app.yaml false "1"` {
		t.Error(got)
	}
	if got := tree(t, old); got != `app.yaml false "0"` {
		t.Error(got)
	}
}
