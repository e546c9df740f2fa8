package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestKilledController kills a controller again and again while it pulls changing content. Some
// kills come at a random time, and some while a file is being written. Whenever the controller is
// ready again, each artifact in a status must exist with its full content. At the end, each object
// must have the latest artifact. No temporary file may be left.
func TestKilledController(t *testing.T) {
	beside(t)
	const kills, count = 6, 6
	s := takeShard(t)
	tn := s.newTenant(t, "killed")
	defer tn.clear(t) // needs a running controller, to remove finalizers
	slow := newRegistry(t, "slow.registry.example.com")
	slow.behave(drip)
	pulls := make([]*v1alpha1.OCIRepository, count)
	latest := make([]atomic.Value, count) // latest[i] is the digest of the last manifest of push(i)
	push := func(i int) {
		tag, content := fmt.Sprintf("tag-%d", i), layer(t, file("noise", noise(t, 200<<10+rand.IntN(1<<20))))
		if i%2 == 0 {
			latest[i].Store(tn.push(t, tag, content))
			return
		}
		manifest, _ := slow.push(t, "app", tag, content)
		latest[i].Store(manifest)
	}
	for i := range pulls {
		push(i)
		pulls[i] = tn.object(fmt.Sprintf("app-%d", i))
		if i%2 == 1 {
			pulls[i] = tn.generic(fmt.Sprintf("app-%d", i), slow.url("app"))
		}
		pulls[i].Spec.Ref.Tag = fmt.Sprintf("tag-%d", i)
		create(t, pulls[i])
	}
	stop := make(chan struct{})
	var pushing sync.WaitGroup
	pushing.Go(func() {
		for i := 0; ; i = (i + 1) % count {
			select {
			case <-stop:
				return
			default:
				push(i)
			}
		}
	})
	// If the test ends early, this cleanup ends the goroutine that pushes.
	finish := sync.OnceFunc(func() { close(stop); pushing.Wait() })
	t.Cleanup(finish)
	writing := 0
	for kill := range kills {
		s.dropLease(t)
		c := s.start(t, "killed", nil)
		if kill%2 == 0 {
			for _, o := range pulls {
				wantConsistent(t, c, o)
			}
			// Kill the controller at a random point of its work.
			time.Sleep(time.Duration(200+rand.IntN(1500)) * time.Millisecond)
		} else {
			eventually(t, "a file is being written", func(context.Context) error {
				return wantf(len(files(t, c, ".tmp")) > 0, "there is none")
			})
		}
		must(t, "kill the controller", c.Kill())
		writing += len(files(t, c, ".tmp"))
	}
	if t.Logf("%d files were being written at the kills", writing); writing == 0 {
		t.Error("no kill came while a file was being written: this proves nothing")
	}
	s.dropLease(t)
	c := s.start(t, "killed", nil)
	finish()
	for i, o := range pulls {
		digest := latest[i].Load().(string)
		await(t, o, "the latest artifact", revision(digest))
		await(t, o, "the present address", func(o *v1alpha1.OCIRepository) error {
			return wantf(strings.HasPrefix(o.Status.Artifact.URL, c.URL("artifacts")+"/"), "the address is another")
		})
		wantServed(t, o)
	}
	if left := files(t, c, ".tmp"); len(left) > 0 {
		t.Errorf("what was being written when the controller was killed is still there: %v", left)
	}
	if kept := files(t, c, "ocirepository"); len(kept) < count {
		t.Errorf("the store has the artifacts %v", kept)
	}
	for _, o := range pulls {
		must(t, "delete an object", objects.Delete(t.Context(), o))
	}
	eventually(t, "the store is empty again", func(context.Context) error {
		left := files(t, c, "ocirepository")
		return wantf(len(left) == 0, "there are %v", left)
	})
}

// drip serves layers slowly.
func drip(w http.ResponseWriter, r *http.Request, well http.Handler) {
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		w = dripping{w, r.Context()}
	}
	well.ServeHTTP(w, r)
}

type dripping struct {
	http.ResponseWriter

	ctx context.Context //nolint:containedctx // of the current request
}

func (d dripping) Write(p []byte) (n int, err error) {
	for chunk := range slices.Chunk(p, 16<<10) {
		written, err := d.ResponseWriter.Write(chunk)
		if n += written; err != nil {
			return n, err
		}
		if err := http.NewResponseController(d.ResponseWriter).Flush(); err != nil {
			return n, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-d.ctx.Done():
			return n, d.ctx.Err()
		}
	}
	return n, nil
}

// wantConsistent asserts that a controller's store has the artifact in the object's status. It
// ignores the host in the artifact's URL, which may be that of a killed controller. The object may
// change during the check.
func wantConsistent(t *testing.T, c *local.Program, o *v1alpha1.OCIRepository) {
	t.Helper()
	must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	for range 20 {
		a := o.Status.Artifact
		if a == nil {
			return // not pulled yet
		}
		_, path, _ := strings.Cut(strings.TrimPrefix(a.URL, "http://"), "/")
		err := fetch(t.Context(), a, c.URL("artifacts")+"/"+path)
		if err == nil {
			return
		}
		must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if o.Status.Artifact != nil && o.Status.Artifact.Digest == a.Digest {
			t.Errorf("%s has an artifact in its status that is not served: %v", o.Name, err)
			return
		}
	}
	t.Errorf("%s changes too fast to be looked at", o.Name)
}

// files returns the files below a folder of a controller's artifact store.
func files(t *testing.T, c *local.Program, folder string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(c.Folder("data"), folder), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			found = append(found, filepath.Base(path))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
	must(t, "list the artifact store", err)
	return found
}

// TestReplicas runs two replicas of one shard, each with its own store. Only the first reconciles.
// The first is killed. The second must take over, and fetch the missing artifacts before it becomes
// ready. Then the first is started again, and the second is stopped. The first must take over
// again.
func TestReplicas(t *testing.T) {
	beside(t)
	s := takeShard(t)
	first := s.start(t, "replica-a", nil)
	awaitLeader(t, first)
	second := s.start(t, "replica-b", nil)
	tn := s.newTenant(t, "replicas")
	defer tn.clear(t) // needs a running controller, to remove finalizers
	manifest := tn.pushFile(t, "1.0.0", "app")
	o := tn.object("app")
	create(t, o)
	servedBy := func(c *local.Program) func(o *v1alpha1.OCIRepository) error {
		return func(o *v1alpha1.OCIRepository) error {
			if err := revision(manifest)(o); err != nil {
				return err
			}
			return wantf(strings.HasPrefix(o.Status.Artifact.URL, c.URL("artifacts")+"/"), "it is served by another replica")
		}
	}
	await(t, o, "the artifact from the first replica", servedBy(first))
	wantServed(t, o)
	for range 3 {
		at := request(t, o)
		await(t, o, "the request is handled", handled(at))
	}
	if n := metric(t, second, "controller_runtime_reconcile_total"); n != 0 {
		t.Errorf("the second replica reconciled %v times while the first one led", n)
	}
	if n := metric(t, first, "controller_runtime_reconcile_total"); n < 4 {
		t.Errorf("the first replica reconciled %v times", n)
	}
	if code := status(t, second.URL("health")+"/readyz"); code != http.StatusInternalServerError {
		t.Errorf("the second replica, which has no artifacts, answers HTTP %d to whether it is ready", code)
	}

	must(t, "kill the first replica", first.Kill())
	s.dropLease(t)
	await(t, o, "the artifact from the second replica", servedBy(second))
	wantServed(t, o)
	eventually(t, "the second replica is ready", func(context.Context) error {
		code := status(t, second.URL("health")+"/readyz")
		return wantf(code == http.StatusOK, "HTTP %d", code)
	})

	again := s.start(t, "replica-a", nil)
	held := s.leaseHolder(t)
	must(t, "stop the second replica", second.Stop(t.Context()))
	if holder := s.leaseHolder(t); holder == held {
		t.Errorf("the second replica, which was stopped in order, keeps its lease as %s", holder)
	}
	await(t, o, "the artifact from the first replica, begun anew", servedBy(again))
	wantServed(t, o)
}

// leaseHolder returns the replica that holds the shard's lease, or an empty string.
func (s *shard) leaseHolder(t *testing.T) string {
	t.Helper()
	lease, err := apiserver.CoordinationV1().Leases(local.Namespace).Get(t.Context(), s.statefulSet(), metav1.GetOptions{})
	must(t, "read the lease", err)
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// awaitLeader waits until a controller holds the lease of its shard.
func awaitLeader(t *testing.T, c *local.Program) {
	t.Helper()
	eventually(t, "the controller leads", func(context.Context) error {
		n := metric(t, c, "leader_election_master_status")
		return wantf(n == 1, "leader_election_master_status is %v", n)
	})
}

func status(t *testing.T, url string) int {
	t.Helper()
	res := get(t, url)
	defer res.Body.Close()
	return res.StatusCode
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, "make a request", err)
	res, err := direct.Do(req)
	must(t, "call "+url, err)
	return res
}

// metric returns the sum of a metric's series that have all labels (name="value"). It is 0 without
// such a series.
func metric(t *testing.T, c *local.Program, name string, labels ...string) float64 {
	t.Helper()
	res := get(t, c.URL("metrics")+"/metrics")
	defer res.Body.Close()
	sum := 0.0
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok {
			series, value, ok = strings.Cut(lines.Text(), " ")
		}
		base, set, _ := strings.Cut(series, "{")
		if !ok || base != name {
			continue
		}
		matches := true
		for _, l := range labels {
			matches = matches && strings.Contains(set, l)
		}
		if matches {
			n, err := strconv.ParseFloat(value, 64)
			must(t, "read a metric", err)
			sum += n
		}
	}
	must(t, "read the metrics", lines.Err())
	return sum
}

// TestNoCache disables the token cache: every reconciliation must make its own exchange.
func TestNoCache(t *testing.T) {
	beside(t)
	s := takeShard(t)
	c := s.start(t, "no-cache", map[string]any{"tokenCache": map[string]any{"maxSize": 0}})
	tn := s.newTenant(t, "no-cache")
	tn.pushFile(t, "1.0.0", "app")
	o := tn.object("app")
	o.Spec.Interval.Duration = time.Hour
	create(t, o)
	await(t, o, "the artifact", pulled)
	const requests = 5
	before := len(exchanges(tn.subject, 0))
	for range requests {
		at := request(t, o)
		await(t, o, "the request is handled", handled(at))
		must(t, "the request", pulled(o))
	}
	if n := len(exchanges(tn.subject, 0)) - before; n != requests {
		t.Errorf("%d reconciliations made %d exchanges", requests, n)
	}
	if reads := len(resolutions(tn, tn.namespace, 0)); reads < requests {
		t.Errorf("the registry was read %d times", reads)
	}
	if n := metric(t, c, "lanyard_token_cache_cached_items"); n != 0 {
		t.Errorf("lanyard_token_cache_cached_items is %v", n)
	}
	// The controller that all tests share caches tokens, so the same metric must not be 0 there.
	if n := metric(t, controller, "lanyard_token_cache_cached_items"); n == 0 {
		kept := newTenant(t, "no-cache-kept")
		kept.pushFile(t, "1.0.0", "app")
		other := kept.object("app")
		create(t, other)
		await(t, other, "the artifact", pulled)
		if n := metric(t, controller, "lanyard_token_cache_cached_items"); n == 0 {
			t.Error("lanyard_token_cache_cached_items is 0 where tokens are kept")
		}
	}
}
