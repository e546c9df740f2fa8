// Package controlplane starts the embedded Kubernetes control plane of dev/controlplane as a child
// process and stops it again.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{
//		Binary: "bin/controlplane",
//		Dir:    ".demo/cluster",
//		Issuer: "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE",
//	})
//	if err != nil { … }
//	defer cp.Stop(context.WithoutCancel(ctx))
//
// The package imports nothing of Kubernetes: the control plane is a separate program, and callers
// use its kubeconfig file.
//
// The child's standard input is a pipe that this process holds open and never writes to. The child
// stops when the pipe ends, so it also stops when this process is killed. An interrupt at the
// terminal reaches both processes, but only this process decides when the child stops.
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

// ErrStopped is the error of a control plane that ended because of Stop.
var ErrStopped = errors.New("control plane stopped")

// Options configure [Start]. Binary, Dir and Issuer are required.
type Options struct {
	// Binary is the path of the program that `make` builds from
	// dev/controlplane.
	Binary string
	// Dir holds the control plane's state. Dir is created if absent, and kept when the control
	// plane stops. Only one control plane may use Dir at a time. A later start with the same Dir
	// continues with this state, on the same port if the port is free.
	Dir string
	// Issuer is the issuer of ServiceAccount tokens: an https URL without query
	// and fragment. Source: kube-apiserver --service-account-issuer.
	Issuer string
	// AuthenticationConfig is the path of an AuthenticationConfiguration file. Default: none. The
	// API server accepts the tokens of Issuer and of the issuers in this file. Source:
	// kube-apiserver --authentication-config.
	AuthenticationConfig string
	// Env has environment variables for the child, each as NAME=VALUE. The child also gets this
	// process's environment. If Env sets a proxy, the API server can reach the issuers in
	// AuthenticationConfig through the proxy.
	Env []string
	// Log receives the log output of the control plane. Default: discarded. Writes come from one
	// goroutine.
	Log io.Writer
	// Progress is called with one line per step of the start, such as "etcd is
	// up". Optional. Calls come from one goroutine and end before Start returns.
	Progress func(step string)
}

// An ExitError says that the control plane ended by itself, or that it failed while it stopped.
type ExitError struct {
	// Err says how the process ended: an *exec.ExitError if its exit status was not 0.
	Err error
	// Log is the end of the process's log, at most 2 KiB.
	Log string
}

// Error includes the end of the log, which says why the control plane ended.
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
	done  chan struct{}      // closed when the child has ended

	mu       sync.Mutex
	stopping bool
	err      error // how the child ended; read after done is closed
}

// Start starts a control plane. It returns once the API server is ready and the namespace default
// has its ServiceAccount. If ctx ends before that, the child is killed and the error is ctx's
// cause. Later, ctx has no effect. If the child ended by itself, the error is an *ExitError.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	for _, required := range []struct{ name, value string }{
		{"Binary", o.Binary}, {"Dir", o.Dir}, {"Issuer", o.Issuer},
	} {
		if required.value == "" {
			return nil, fmt.Errorf("controlplane: Options.%s is required", required.name)
		}
	}
	// The path must be absolute, because the child changes its working directory.
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
		case !starting: // Progress reports only the start: ignore lines after "ready"
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

// reap waits for the child's end and stores in err how the child ended.
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

// PID is the ID of the child's process, which runs etcd, the API server and the controllers. It is
// for measurements, and for tests that suspend the process for a while.
func (c *ControlPlane) PID() int { return c.pid }

// Kubeconfig is the path of the administrator's kubeconfig file (group
// system:masters). Programs under test get credentials of their own.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// CAFile is the path of the API server's CA certificate, PEM.
func (c *ControlPlane) CAFile() string { return filepath.Join(c.dir, "ca.crt") }

// Kubectl returns a kubectl command that uses the administrator's kubeconfig. The caller sets the
// command's streams and starts the command.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"kubectl", "--kubeconfig", c.Kubeconfig()}, args...)
	return exec.CommandContext(ctx, c.binary, args...) //nolint:gosec // running the caller's binary is the purpose
}

// Done is closed when the control plane has ended, for whatever reason.
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

// Stop asks the control plane to stop, and waits for its end, which takes at most ten seconds. If
// ctx ends first, the control plane is killed, and the error holds ctx's cause. A second Stop does
// nothing and returns nil. If the control plane ended by itself, Stop returns the *ExitError.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	_ = c.stdin.Close() // fails only if it was closed before

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

// lines is a writer that passes each complete line to a function.
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
