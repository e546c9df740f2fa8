// Package controlplane starts the embedded Kubernetes control plane of
// dev/controlplane as a child process and stops it again.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{
//		Binary: "bin/controlplane",
//		Dir:    ".demo/cluster",
//		Issuer: "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE",
//	})
//	if err != nil { … }
//	defer cp.Stop(context.WithoutCancel(ctx))
//
// It imports nothing of Kubernetes: the control plane is a program of its own,
// and callers reach it through its kubeconfig file.
//
// The child's standard input is a pipe that this process holds open and never writes to. The end of
// the pipe is the child's signal to stop, so the child also stops when this process is killed. An
// interrupt at the terminal reaches both, but this process decides when the child stops.
package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/lanyard-dev/lanyard/internal/logtail"
)

// ErrStopped is the cause of a process that ended after Stop.
var ErrStopped = errors.New("control plane stopped")

// Options say what to start. Binary, Dir and Issuer are required.
type Options struct {
	// Binary is the path of the program that `make` builds from
	// dev/controlplane.
	Binary string
	// Dir holds the control plane's state. It is created if absent, and belongs to one control
	// plane at a time. It is kept when the control plane stops. A later start with the same Dir
	// continues with its state, on the same port if the port is free.
	Dir string
	// Issuer is the issuer of ServiceAccount tokens, an https URL without query
	// and fragment; source: kube-apiserver --service-account-issuer.
	Issuer string
	// AuthenticationConfig is the path of an AuthenticationConfiguration, which
	// names further issuers whose tokens the API server accepts; source:
	// kube-apiserver --authentication-config. Default: none.
	AuthenticationConfig string
	// Env is added to this process's environment, NAME=VALUE: the API server
	// reaches the issuers of AuthenticationConfig through the proxy that it names.
	Env []string
	// Log receives what the control plane logs. Default: discarded. Writes come
	// from one goroutine.
	Log io.Writer
	// Progress is called with one line per step of the start, such as "etcd is
	// up". Optional. Calls come from one goroutine and end before Start returns.
	Progress func(step string)
}

// An ExitError says that the control plane ended without being asked to, or not
// in order.
type ExitError struct {
	// Err returns how the process ended: an *exec.ExitError if it ran.
	Err error
	// Log is the end of what it logged, at most 2 KiB.
	Log string
}

// Error holds the log's end, which names the reason.
func (e *ExitError) Error() string {
	return fmt.Sprintf("control plane ended: %v\n%s", e.Err, e.Log)
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// ControlPlane is a running control plane. It is safe for concurrent use.
type ControlPlane struct {
	binary, dir, server string
	pid                 int

	stdin io.Closer          // closing it asks the child to stop
	kill  context.CancelFunc // ends the child at once
	done  chan struct{}      // closed when the child is gone

	mu       sync.Mutex
	stopping bool
	err      error // how the child ended; read after done
}

// Start starts a control plane and returns once its API server is ready and the
// namespace default has its ServiceAccount. When ctx ends before that, the child
// is ended and the error is ctx's cause; later, ctx has no effect. The error is
// an *ExitError if the child ended by itself.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	for _, required := range []struct{ name, value string }{
		{"Binary", o.Binary}, {"Dir", o.Dir}, {"Issuer", o.Issuer},
	} {
		if required.value == "" {
			return nil, fmt.Errorf("controlplane: Options.%s is required", required.name)
		}
	}
	// The child changes its working directory.
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	args := []string{"serve", "--stop-with-stdin", "--data-dir=" + dir, "--service-account-issuer=" + o.Issuer}
	if o.AuthenticationConfig != "" {
		args = append(args, "--authentication-config="+o.AuthenticationConfig)
	}

	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(life, o.Binary, args...) //nolint:gosec // running the caller's binary is the purpose
	cmd.Env = append(cmd.Environ(), o.Env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		kill()
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	ready := make(chan string, 1)
	starting := true
	cmd.Stdout = &lines{each: func(line string) {
		server, isReady := strings.CutPrefix(line, "ready ")
		switch {
		case !starting: // nobody asks what it says while it stops
		case isReady:
			starting = false
			ready <- server
		case o.Progress != nil:
			o.Progress(line)
		}
	}}
	end := &logtail.Tail{}
	cmd.Stderr = end
	if o.Log != nil {
		cmd.Stderr = io.MultiWriter(end, o.Log)
	}
	if err := cmd.Start(); err != nil {
		kill()
		return nil, fmt.Errorf("controlplane: %w", err)
	}

	c := &ControlPlane{
		binary: o.Binary, dir: dir, pid: cmd.Process.Pid,
		stdin: stdin, kill: kill, done: make(chan struct{}),
	}
	go c.reap(cmd, end)

	select {
	case c.server = <-ready:
		return c, nil
	case <-c.done:
		return nil, c.err
	case <-ctx.Done():
		kill()
		<-c.done
		return nil, fmt.Errorf("controlplane: start: %w", context.Cause(ctx))
	}
}

// reap waits for the child's end and notes how it came.
func (c *ControlPlane) reap(cmd *exec.Cmd, end *logtail.Tail) {
	defer close(c.done)
	err := cmd.Wait()
	c.kill() // releases the context
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopping && err == nil:
		c.err = ErrStopped
	case err == nil:
		c.err = &ExitError{Err: errors.New("exit status 0"), Log: end.String()}
	default:
		c.err = &ExitError{Err: err, Log: end.String()}
	}
}

// Server is the API server's URL, https on a loopback address with a port.
func (c *ControlPlane) Server() string { return c.server }

// PID is the ID of the child's process, which is etcd, the API server and the controllers in one.
// For measurements, and for tests that stop it for a while.
func (c *ControlPlane) PID() int { return c.pid }

// Kubeconfig is the path of the administrator's kubeconfig file (group
// system:masters). Programs under test get credentials of their own.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// CAFile is the path of the PEM certificate that vouches for Server.
func (c *ControlPlane) CAFile() string { return filepath.Join(c.dir, "ca.crt") }

// Kubectl is kubectl with the administrator's kubeconfig, not yet started. The
// caller sets its streams.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"kubectl", "--kubeconfig", c.Kubeconfig()}, args...)
	return exec.CommandContext(ctx, c.binary, args...) //nolint:gosec // running the caller's binary is the purpose
}

// Done is closed when the control plane has ended, asked to or not.
func (c *ControlPlane) Done() <-chan struct{} { return c.done }

// Err is nil while the control plane runs, ErrStopped after an orderly stop, and
// an *ExitError otherwise.
func (c *ControlPlane) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop asks the control plane to stop, which takes it at most ten seconds, and
// waits for its end. When ctx ends first, it is killed; the error then holds
// ctx's cause. Stopping what has stopped does nothing and returns nil; what ended
// by itself returns its *ExitError.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	_ = c.stdin.Close() // fails only when closed before

	select {
	case <-c.done:
	case <-ctx.Done():
		c.kill()
		<-c.done
		return errors.Join(fmt.Errorf("control plane killed: %w", context.Cause(ctx)), c.err)
	}
	if errors.Is(c.err, ErrStopped) {
		return nil
	}
	return c.err
}

// lines calls each with every whole line that is written to it.
type lines struct {
	each func(string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.rest = rest
		l.each(string(line))
	}
}
