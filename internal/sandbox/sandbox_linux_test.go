package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lanyard-dev/lanyard/auth/share"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// child is the path of the program that the tests start as a child.
var child string

// TestMain builds the child. A test binary with the race detector cannot be a child itself: the
// detector needs more memory than a child may have.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "sandbox")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(folder)
	child = filepath.Join(folder, "child")
	build := exec.Command("go", "build", "-o", child, "./testdata/child")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Printf("build the child: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// limits are those of the tests.
var limits = sandbox.Limits{
	Children: 2, Memory: 128 << 20, Time: 20 * time.Second, Request: 1 << 20, Answer: 1 << 20, Requests: 10, Idle: time.Minute,
}

// newPool returns a pool that is closed at the end of the test.
func newPool(t *testing.T, change func(*sandbox.Limits)) *sandbox.Pool {
	t.Helper()
	chosen := limits
	if change != nil {
		change(&chosen)
	}
	pool := sandbox.New(child, chosen)
	t.Cleanup(pool.Close)
	return pool
}

// do sends a request of a tenant, and returns the answer as text.
func do(t *testing.T, pool *sandbox.Pool, tenant, request string) (string, error) {
	t.Helper()
	return send(t.Context(), pool, sandbox.Request{Tenant: tenant, Parts: [][]byte{[]byte(request)}})
}

// send sends a request, and returns the answer as text.
func send(ctx context.Context, pool *sandbox.Pool, request sandbox.Request) (answer string, err error) {
	err = pool.Do(ctx, request, func(got []byte) error {
		answer = string(got)
		return nil
	})
	return answer, err
}

func TestAnswer(t *testing.T) {
	pool := newPool(t, nil)
	must.Succeed(t, pool.Check(t.Context()))
	answer, err := send(t.Context(), pool, sandbox.Request{Tenant: "a", Parts: [][]byte{[]byte("echo one"), []byte(" and two")}})
	if err != nil || answer != "one and two" {
		t.Fatalf("answer %q, %v", answer, err)
	}
	answer, err = send(t.Context(), pool, sandbox.Request{Tenant: "a", Function: "other", Parts: [][]byte{[]byte("echo one")}})
	if err != nil || answer != "another function" {
		t.Errorf("answer %q, %v", answer, err)
	}
	_, err = send(t.Context(), pool, sandbox.Request{Tenant: "a", Function: "missing"})
	if failure, ok := errors.AsType[*sandbox.Error](err); !ok || failure.Reason != sandbox.ReasonCrash {
		t.Errorf("a function that does not exist: %v", err)
	}
}

// TestAttacks lets a child try what hostile input would try.
func TestAttacks(t *testing.T) {
	must.Succeed(t, sandbox.Protect())
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); dumpable != 0 || err != nil {
		t.Errorf("other processes may read the memory of this process: %d, %v", dumpable, err)
	}
	secret := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(secret, []byte("secret"), 0o600))
	answer, err := do(t, newPool(t, nil), "a", "attacks "+secret)
	must.Succeed(t, err)
	var results map[string]string
	must.Succeed(t, json.Unmarshal([]byte(answer), &results))
	for what, want := range map[string]string{
		"environment": "[GODEBUG=containermaxprocs=0]", "descriptors": "", "new descriptors": "too many open files",
	} {
		if got := results[what]; got != want && (want == "" || !strings.HasSuffix(got, want)) {
			t.Errorf("%s: %q", what, got)
		}
		delete(results, what)
	}
	for attack, result := range results {
		if !strings.Contains(result, "operation not permitted") {
			t.Errorf("%s: %s", attack, result)
		}
	}
	if len(results) < 30 {
		t.Errorf("only %d attacks were tried", len(results))
	}
	if _, err := os.Stat("/tmp/made-by-a-child"); err == nil {
		t.Error("the child made a file")
	}
}

// TestMemory lets a child use memory in ways that the heap does not use, and asks the kernel how much
// the child has.
func TestMemory(t *testing.T) {
	for _, way := range []string{"plain", "hidden", "grows", "tables"} {
		pid, err := do(t, newPool(t, nil), "a", "keep "+way)
		must.Succeed(t, err)
		content, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		must.Succeed(t, err)
		status := map[string]string{}
		for line := range strings.Lines(string(content)) {
			name, value, _ := strings.Cut(line, ":")
			status[name] = strings.TrimSuffix(strings.TrimSpace(value), " kB")
		}
		total := 0
		for _, name := range []string{"RssAnon", "RssShmem", "VmPTE", "VmSwap"} {
			kilobytes, err := strconv.Atoi(status[name])
			must.Succeed(t, err)
			total += kilobytes >> 10
		}
		if most := int(limits.Memory >> 20); total > most+10 {
			t.Errorf("%s: the child has %d MiB", way, total)
		}
		if status["THP_enabled"] != "0" {
			t.Errorf("%s: the child has huge pages", way)
		}
	}
}

// TestManyRequests has one child serve many requests, of which each leaves garbage.
func TestManyRequests(t *testing.T) {
	pool := newPool(t, func(l *sandbox.Limits) { l.Requests = 1000 })
	processes := map[string]bool{}
	for range 300 {
		_, err := do(t, pool, "a", "garbage")
		must.Succeed(t, err)
		answer, err := do(t, pool, "a", "served")
		must.Succeed(t, err)
		pid, _, _ := strings.Cut(answer, " ")
		processes[pid] = true
	}
	if len(processes) > 1 {
		t.Errorf("%d processes served the requests", len(processes))
	}
}

// TestIdle has a child compute after its answer. The child is stopped until the next request.
func TestIdle(t *testing.T) {
	pool := newPool(t, nil)
	pid, err := do(t, pool, "a", "burn")
	must.Succeed(t, err)
	eventually(t, "the idle child is stopped", func() bool { return state(t, pid) == "T" })
	if answer, err := do(t, pool, "a", "served"); err != nil || answer != pid+" 2" {
		t.Errorf("answer %q, %v", answer, err)
	}
}

// state returns the state of a process, as ps shows the state.
func state(t *testing.T, pid string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	must.Succeed(t, err)
	_, after, _ := strings.Cut(string(content), ") ")
	return after[:1]
}

// TestUsedUp has a child use most of its memory for one request. The next request gets a new child,
// and is not repeated.
func TestUsedUp(t *testing.T) {
	pool := newPool(t, nil)
	for range 3 {
		if answer, err := do(t, pool, "a", "fill"); answer != "filled" {
			t.Fatalf("answer %q, %v", answer, err)
		}
		if answer, err := do(t, pool, "a", "served"); err != nil || !strings.HasSuffix(answer, " 1") {
			t.Errorf("answer %q, %v", answer, err)
		}
		pool.Close()
		pool = newPool(t, nil)
	}
}

// TestWarnings checks that a long warning does not hide why the next request fails.
func TestWarnings(t *testing.T) {
	pool := newPool(t, nil)
	for range 3 {
		if answer, err := do(t, pool, "a", "warn"); answer != "warned" {
			t.Fatalf("answer %q, %v", answer, err)
		}
	}
	_, err := do(t, pool, "a", "nest")
	if failure, ok := errors.AsType[*sandbox.Error](err); !ok || failure.Reason != sandbox.ReasonDepth {
		t.Errorf("error %v", err)
	}
}

// TestBadAnswer refuses the answer of a used child, and then of a new child.
func TestBadAnswer(t *testing.T) {
	pool := newPool(t, nil)
	if _, err := do(t, pool, "a", "echo x"); err != nil {
		t.Fatal(err)
	}
	refusal, uses := errors.New("refused"), 0
	err := pool.Do(t.Context(), sandbox.Request{Tenant: "a", Parts: [][]byte{[]byte("echo x")}}, func([]byte) error {
		uses++
		return refusal
	})
	if !errors.Is(err, refusal) || uses != 2 {
		t.Errorf("%d uses, %v", uses, err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = pool.Do(t.Context(), sandbox.Request{Tenant: "a", Parts: [][]byte{[]byte("echo x")}}, func([]byte) error { panic("in the test") })
	}()
	eventually(t, "children whose answers were refused end", func() bool { return children(t) == 0 })
}

// TestLimits sends requests that cost too much. Each gets a reason, within its limits.
func TestLimits(t *testing.T) {
	for _, test := range []struct {
		request string
		reason  sandbox.Reason
		says    string
	}{
		{"allocate", sandbox.ReasonMemory, "the work needed more than 128 MiB of memory"},
		{"loop", sandbox.ReasonTime, "took longer than 3s"},
		{"sleep 1h", sandbox.ReasonTime, "took longer than 3s"},
		{"nest", sandbox.ReasonDepth, "nested too deeply"},
		{"long", sandbox.ReasonSize, "larger than 1048576 bytes"},
		{"echo " + strings.Repeat("x", 1<<20), sandbox.ReasonSize, "the input is larger than 1048576 bytes"},
		{"exit", sandbox.ReasonCrash, "exit status 3"},
		{"panic with a secret", sandbox.ReasonCrash, "exit status 2"},
	} {
		t.Run(test.request[:min(20, len(test.request))], func(t *testing.T) {
			pool := newPool(t, func(l *sandbox.Limits) { l.Time = 3 * time.Second })
			begin := time.Now()
			_, err := do(t, pool, "a", test.request)
			failure, ok := errors.AsType[*sandbox.Error](err)
			if !ok || failure.Reason != test.reason || !strings.Contains(err.Error(), test.says) || failure.Fix == "" {
				t.Errorf("error %v, want %s with %q", err, test.reason, test.says)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has content of the request: %v", err)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("the end came after %s", took)
			}
			if answer, err := do(t, pool, "a", "echo again"); answer != "again" {
				t.Errorf("the next request: %q, %v", answer, err)
			}
		})
	}
}

// TestHonestBesideHostile sends requests of ten honest tenants while a hostile tenant allocates,
// loops and nests.
func TestHonestBesideHostile(t *testing.T) {
	pool := newPool(t, func(l *sandbox.Limits) { l.Time = 2 * time.Second })
	var work sync.WaitGroup
	for _, attack := range []string{"allocate", "loop", "nest", "sleep 1h"} {
		work.Go(func() {
			if _, err := do(t, pool, "hostile", attack); err == nil {
				t.Errorf("%s: no error", attack)
			}
		})
	}
	for i := range 10 {
		work.Go(func() {
			for range 3 {
				begin := time.Now()
				if answer, err := do(t, pool, fmt.Sprint("honest-", i), "echo x"); err != nil || answer != "x" {
					t.Errorf("answer %q, %v", answer, err)
				}
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("an honest request took %s", took)
				}
			}
		})
	}
	work.Wait()
}

// TestOwnChild checks who shares a child.
func TestOwnChild(t *testing.T) {
	pool := newPool(t, func(l *sandbox.Limits) { l.Requests, l.Children = 3, 4 })
	served := func(tenant string, alone bool) (pid, number string) {
		t.Helper()
		answer, err := send(t.Context(), pool, sandbox.Request{Tenant: tenant, Parts: [][]byte{[]byte("served")}, Alone: alone})
		must.Succeed(t, err)
		pid, number, _ = strings.Cut(answer, " ")
		return pid, number
	}
	first, _ := served("a", false)
	if again, number := served("a", false); again != first || number != "2" {
		t.Errorf("the tenant's second request went to process %s as request %s, want process %s", again, number, first)
	}
	if other, number := served("b", false); other == first || number != "1" {
		t.Error("another tenant got the child")
	}
	if alone, number := served("a", true); alone == first || number != "1" {
		t.Error("a request that must be alone got a used child")
	}
	if again, number := served("a", false); again != first || number != "3" {
		t.Errorf("the tenant's third request went to process %s as request %s, want process %s", again, number, first)
	}
	if fourth, _ := served("a", false); fourth == first {
		t.Error("a child served more requests than allowed")
	}
}

// TestNewChildAfterFailure checks that a request is repeated if a used child fails.
func TestNewChildAfterFailure(t *testing.T) {
	pool := newPool(t, nil)
	for range 3 {
		if answer, err := do(t, pool, "a", "once"); err != nil || answer != "1" {
			t.Fatalf("answer %q, %v", answer, err)
		}
	}
}

// TestSlowOnce checks that a request that takes too long is not repeated in a new child.
func TestSlowOnce(t *testing.T) {
	pool := newPool(t, func(l *sandbox.Limits) { l.Time = 4 * time.Second })
	_, err := do(t, pool, "a", "echo x")
	must.Succeed(t, err)
	begin := time.Now()
	_, err = do(t, pool, "a", "sleep 1h")
	if failure, ok := errors.AsType[*sandbox.Error](err); !ok || failure.Reason != sandbox.ReasonTime {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took > 7*time.Second {
		t.Errorf("the request took %s", took)
	}
}

// TestBounds checks that there are never more children than allowed, and none after Close.
func TestBounds(t *testing.T) {
	pool := newPool(t, func(l *sandbox.Limits) { l.Idle = 50 * time.Millisecond })
	var work sync.WaitGroup
	stop := make(chan struct{})
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if n := children(t); n > limits.Children {
				t.Errorf("%d children at once", n)
			}
			time.Sleep(time.Millisecond)
		}
	})
	var requests sync.WaitGroup
	for i := range 12 {
		requests.Go(func() {
			for range 3 {
				_, err := do(t, pool, fmt.Sprint("tenant-", i%4), "sleep 5ms")
				must.Succeed(t, err)
			}
		})
	}
	requests.Wait()
	eventually(t, "idle children end", func() bool { return children(t) == 0 })
	close(stop)
	work.Wait()
	_, err := do(t, pool, "a", "served")
	must.Succeed(t, err)
	pool.Close()
	if n := children(t); n != 0 {
		t.Errorf("%d children after Close", n)
	}
	if _, err := do(t, pool, "a", "served"); err == nil {
		t.Error("a closed pool serves")
	}
}

// children returns the number of child processes of this process that run the child program.
func children(t *testing.T) (n int) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	must.Succeed(t, err)
	for _, folder := range folders {
		arguments, _ := os.ReadFile(filepath.Join(folder, "cmdline")) // empty for a process that has ended
		stat, _ := os.ReadFile(filepath.Join(folder, "stat"))
		// A process between fork and exec still has the arguments of its parent.
		if bytes.HasPrefix(arguments, []byte(child+"\x00")) && bytes.Contains(stat, fmt.Appendf(nil, " %d ", os.Getpid())) {
			n++
		}
	}
	return n
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begin := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("not true after 20 s: %s", what)
		}
	}
}

// TestManyStarts starts many children at once. The steps with which they give up their rights must
// not disturb each other.
func TestManyStarts(t *testing.T) {
	pool := newPool(t, func(l *sandbox.Limits) { l.Children = 8 })
	var work sync.WaitGroup
	for i := range 16 {
		work.Go(func() {
			for range 20 {
				if _, err := send(t.Context(), pool, sandbox.Request{Tenant: fmt.Sprint("tenant-", i), Alone: true}); err != nil {
					t.Errorf("error %v", err)
				}
			}
		})
	}
	work.Wait()
}

// TestGivenUp ends the context of a request while the child works, and while the request waits.
func TestGivenUp(t *testing.T) {
	pool := newPool(t, func(l *sandbox.Limits) { l.Children = 1 })
	reason := errors.New("the object was changed")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(2*time.Second, func() { cancel(reason) })
	var work sync.WaitGroup
	work.Go(func() {
		if _, err := send(ctx, pool, sandbox.Request{Tenant: "a", Parts: [][]byte{[]byte("sleep 1h")}}); !errors.Is(err, reason) {
			t.Errorf("the working request: %v", err)
		}
	})
	work.Go(func() {
		eventually(t, "the first request works", func() bool { return children(t) == 1 })
		_, err := send(ctx, pool, sandbox.Request{Tenant: "b", Parts: [][]byte{[]byte("sleep 1h")}})
		if _, ok := errors.AsType[*share.NoPlaceError](err); !ok || !errors.Is(err, reason) {
			t.Errorf("the waiting request: %v", err)
		}
	})
	work.Wait()
	if answer, err := do(t, pool, "c", "echo x"); answer != "x" {
		t.Errorf("the next request: %q, %v", answer, err)
	}
}

// TestUnavailable uses programs that cannot be children.
func TestUnavailable(t *testing.T) {
	for _, program := range []string{"/does/not/exist", "/bin/true", "/bin/cat"} {
		pool := sandbox.New(program, limits)
		_, err := do(t, pool, "a", "echo x")
		if failure, ok := errors.AsType[*sandbox.Error](err); !ok || failure.Reason != sandbox.ReasonUnavailable {
			t.Errorf("%s: %v", program, err)
		}
		if pool.Check(t.Context()) == nil {
			t.Errorf("%s passes the check", program)
		}
		pool.Close()
	}
}

// BenchmarkChild measures a request to a new child, and to a child that is already there.
func BenchmarkChild(b *testing.B) {
	for name, alone := range map[string]bool{"new": true, "used": false} {
		b.Run(name, func(b *testing.B) {
			chosen := limits
			chosen.Requests = 1 << 30
			pool := sandbox.New(child, chosen)
			defer pool.Close()
			for b.Loop() {
				_, err := send(b.Context(), pool, sandbox.Request{Tenant: "a", Parts: [][]byte{[]byte("echo x")}, Alone: alone})
				must.Succeed(b, err)
			}
		})
	}
}
