package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// smaller is the next step after a limit was reached.
const smaller = "make the input smaller, or ask the administrator for a higher limit"

// startTime is how long a child may take to give up its rights.
const startTime = 10 * time.Second

// maxTrace bounds what a child may write to its standard error, in bytes. The runtime writes its
// last words there.
const maxTrace = 16 << 10

// child is a process that serves one tenant.
type child struct {
	tenant string
	served int           // number of requests that the child has answered
	worked time.Duration // how long these requests took together
	// idleTimer ends the child if no request comes.
	idleTimer *time.Timer

	process *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
	trace   *trace
	ended   func() error // waits for the end of the process; may be called several times
}

// start starts a child, and waits until the child has given up its rights.
func start(program, tenant string, allowed Limits) (*child, error) {
	// The pool ends a child whose requests took Limits.Time together. So each request of an honest
	// child can use this much processor time.
	life := limits{memory: uint64(max(0, allowed.Memory)), time: allowed.Time * 2, input: allowed.Request}
	c := &child{tenant: tenant, trace: &trace{}}
	c.process = exec.Command(program, life.arguments()...) //nolint:gosec,noctx // this program itself; ended by kill
	// The runtime would keep files of the container's limits open, to follow changes.
	c.process.Env = []string{"GODEBUG=containermaxprocs=0"}
	c.process.Dir = "/"
	c.process.Stderr = c.trace
	c.process.WaitDelay = time.Second
	in, err := c.process.StdinPipe()
	if err != nil {
		return nil, unavailable(err)
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, unavailable(err)
	}
	c.in, c.out = in, out
	if err := c.process.Start(); err != nil {
		return nil, unavailable(err)
	}
	c.ended = sync.OnceValue(c.process.Wait)
	timer := time.AfterFunc(startTime, c.signal)
	defer timer.Stop()
	refusal, err := readFrame(c.out, maxRefusal)
	if err == nil && len(refusal) == 0 {
		return c, nil
	}
	c.kill()
	if err == nil {
		return nil, unavailable(errors.New(string(refusal)))
	}
	last, _, _ := strings.Cut(c.trace.text(), "\n")
	return nil, unavailable(fmt.Errorf("the process ended (%s): %w: %s", c.process.ProcessState, err, last))
}

// signal kills the process, and does not wait for its end.
func (c *child) signal() { _ = c.process.Process.Kill() }

// kill ends the process. The process is gone when kill returns.
func (c *child) kill() {
	c.signal()
	_ = c.ended()
}

// do sends a request and reads the answer. After an error the child must be ended.
func (c *child) do(ctx context.Context, request [][]byte, allowed Limits) ([]byte, error) {
	deadline, cancel := context.WithTimeout(ctx, allowed.Time)
	defer cancel()
	stop := context.AfterFunc(deadline, c.signal)
	defer stop()
	c.trace.reset()
	begin := time.Now()
	defer func() { c.worked += time.Since(begin) }()
	// A child that answers without reading the request would block a write that waits for it.
	sent := make(chan error, 1)
	go func() { sent <- writeFrame(c.in, request...) }()
	answer, err := readFrame(c.out, allowed.Answer)
	if err != nil {
		c.kill()
	}
	if failed := <-sent; err == nil {
		err = failed
	}
	if !stop() { // the process has been killed, so another request must not use it
		err = errors.Join(err, context.Cause(deadline))
	}
	if err == nil {
		return answer, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	c.kill()
	return nil, c.explain(err, deadline.Err() != nil, allowed)
}

// explain returns the error for a child that has ended without an answer.
func (c *child) explain(err error, late bool, allowed Limits) *Error {
	state := c.process.ProcessState
	status, _ := state.Sys().(syscall.WaitStatus)
	// The kernel kills a child that has used up its processor time, or for which the container has
	// no memory.
	killed, used := status.Signaled() && status.Signal() == syscall.SIGKILL, state.UserTime()+state.SystemTime()
	last := c.trace.text()
	switch {
	case errors.Is(err, errTooLong):
		return &Error{Reason: ReasonSize, Err: fmt.Errorf("the result is larger than %d bytes", allowed.Answer), Fix: smaller}
	case late, killed && used >= allowed.Time:
		return &Error{Reason: ReasonTime, Err: fmt.Errorf("the work took longer than %s", allowed.Time), Fix: smaller}
	case strings.Contains(last, "stack exceeds"):
		return &Error{Reason: ReasonDepth, Err: errors.New("the input is nested too deeply"), Fix: "remove the nesting"}
	case killed, strings.Contains(last, "out of memory"), strings.Contains(last, "cannot allocate memory"), strings.HasPrefix(last, "SIGSEGV"):
		// Without memory, Go's runtime may also crash in its garbage collection. The trace of an
		// ordinary panic begins with "panic".
		return &Error{Reason: ReasonMemory, Err: fmt.Errorf("the work needed more than %d MiB of memory", allowed.Memory>>20), Fix: smaller}
	default:
		return &Error{Reason: ReasonCrash, Err: fmt.Errorf("the confined process ended: %s", state), Fix: "report this input to the developers of Lanyard"}
	}
}

// trace keeps the beginning of what a process writes to its standard error during a request. If the
// runtime ends the process, the first line says why.
type trace struct {
	mu      sync.Mutex
	content bytes.Buffer
}

// Write implements io.Writer. It never fails, so that the process is not disturbed.
func (t *trace) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.content.Write(p[:min(len(p), maxTrace-t.content.Len())])
	return len(p), nil
}

// reset forgets what was written.
func (t *trace) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.content.Reset()
}

func (t *trace) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.content.String()
}
