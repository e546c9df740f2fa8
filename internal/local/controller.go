package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ControllerOptions say which controller is started. Binary is required.
type ControllerOptions struct {
	// Binary is the path of lanyard-controller.
	Binary string
	// StatefulSet is the name of the chart's StatefulSet whose container is started. Default: lanyard-controller.
	StatefulSet string
	// Name tells several controllers of one world apart, in its folder. Two of one name share an artifact store, and must not
	// run at the same time. Default: controller.
	Name string
}

// Controller is a running lanyard-controller.
type Controller struct {
	// Log is the path of its log.
	Log string
	// Storage is the folder of its artifact store.
	Storage string
	// HealthURL, MetricsURL and ArtifactURL are where it listens, "http://127.0.0.1:<port>".
	HealthURL, MetricsURL, ArtifactURL string

	cmd    *exec.Cmd
	cancel context.CancelFunc
	token  *tokenFile
	end    *tail
	done   chan struct{}

	mu       sync.Mutex // guards the fields below
	stopping bool
	err      error // how it ended; read after done
}

// ControllerError says that a controller ended without being asked to.
type ControllerError struct {
	// Err is how the process ended, an *exec.ExitError if it ran at all.
	Err error
	// Log is the path of the whole log, End its last lines.
	Log, End string
}

// Error holds the log's end, which names the reason.
func (e *ControllerError) Error() string {
	return fmt.Sprintf("lanyard-controller ended: %v; its log is %s and ends so:\n%s", e.Err, e.Log, e.End)
}

// Unwrap returns how the process ended.
func (e *ControllerError) Unwrap() error { return e.Err }

// controllerGrace is how long a controller may take to stop.
const controllerGrace = 15 * time.Second

// StartController starts a controller with the arguments and the environment that the chart's StatefulSet gives it, addresses
// and paths apart, and as the chart's ServiceAccount: its kubeconfig has a token of its own, which the world renews. It
// returns once the controller is ready. The controller lives until [Controller.Stop] or [World.Stop], or the end of this
// process.
func (w *World) StartController(ctx context.Context, o ControllerOptions) (*Controller, error) {
	if err := CheckBinary(o.Binary, "--controller"); err != nil {
		return nil, err
	}
	if o.StatefulSet == "" {
		o.StatefulSet = "lanyard-controller"
	}
	if o.Name == "" {
		o.Name = "controller"
	}
	w.mu.Lock()
	spec, ok := w.statefulset[o.StatefulSet]
	w.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("the chart has no StatefulSet %s; install it first", o.StatefulSet)
	}
	dir := w.folder.join(controllersName, o.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the controller's folder: %w", err)
	}
	addresses, err := freeAddresses(ctx, 3)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		Log:         w.folder.join(o.Name + ".log"),
		Storage:     filepath.Join(dir, "artifacts"),
		ArtifactURL: "http://" + addresses[0], MetricsURL: "http://" + addresses[1], HealthURL: "http://" + addresses[2],
		end: &tail{}, done: make(chan struct{}),
	}
	args, err := adapt(spec.args, map[string]string{
		"storage-path":            c.Storage,
		"artifact-base-url":       c.ArtifactURL,
		"artifact-listen-address": addresses[0],
		"metrics-address":         addresses[1],
		"health-address":          addresses[2],
	})
	if err != nil {
		return nil, err
	}
	env, err := environment(spec)
	if err != nil {
		return nil, err
	}
	c.token, err = w.newTokenFile(ctx, spec.account, dir)
	if err != nil {
		return nil, err
	}
	args = append(args, "--kubeconfig="+c.token.kubeconfig)
	if err := c.start(ctx, o.Binary, args, env, w); err != nil {
		c.token.close()
		return nil, err
	}
	w.mu.Lock()
	w.children = append(w.children, c)
	w.mu.Unlock()
	go w.note(c.done, c.Err)
	if err := c.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// adapt replaces the values of arguments of the form --name=value. A name that is not among them is an error: the chart and
// this program would have drifted apart.
func adapt(args []string, values map[string]string) ([]string, error) {
	out := slices.Clone(args)
	found := map[string]bool{}
	for i, arg := range out {
		name, _, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		value, ours := values[name]
		switch {
		case !ours:
		case !hasValue || !strings.HasPrefix(arg, "--"):
			return nil, fmt.Errorf("the chart writes argument %q otherwise than --%s=<value>", arg, name)
		case found[name]:
			return nil, fmt.Errorf("the chart gives argument --%s twice", name)
		default:
			found[name] = true
			out[i] = "--" + name + "=" + value
		}
	}
	for name := range values {
		if !found[name] {
			return nil, fmt.Errorf("the chart does not give argument --%s, which must have another value here", name)
		}
	}
	return out, nil
}

// environment is a container's environment as a process has it. What only a kubelet could fill in is an error, but for the
// container's own limits.
func environment(c container) ([]string, error) {
	env := make([]string, 0, len(c.env))
	for _, v := range c.env {
		value := v.Value
		if v.ValueFrom != nil {
			limit, ok := limitOf(c, v.ValueFrom)
			if !ok {
				return nil, fmt.Errorf("the chart takes environment variable %s from elsewhere (valueFrom), which needs a kubelet", v.Name)
			}
			value = limit
		}
		if strings.Contains(value, "$(") {
			return nil, fmt.Errorf("the chart's environment variable %s refers to another, which needs a kubelet", v.Name)
		}
		env = append(env, v.Name+"="+value)
	}
	return env, nil
}

// limitOf is a limit of the container itself, in bytes or cores. Source: Kubernetes, "Downward API", fields of containers.
func limitOf(c container, from *corev1.EnvVarSource) (string, bool) {
	if from.ResourceFieldRef == nil || !from.ResourceFieldRef.Divisor.IsZero() {
		return "", false
	}
	name, ok := strings.CutPrefix(from.ResourceFieldRef.Resource, "limits.")
	limit, set := c.limits[corev1.ResourceName(name)]
	return strconv.FormatInt(limit.Value(), 10), ok && set
}

// freeAddresses finds loopback addresses that nobody listens on.
func freeAddresses(ctx context.Context, n int) (addresses []string, err error) {
	for range n {
		var lc net.ListenConfig
		ln, listenErr := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if listenErr != nil {
			return nil, fmt.Errorf("find a free port: %w", listenErr)
		}
		defer func() { err = errors.Join(err, ln.Close()) }() // all stay open until all are chosen, so that they differ
		addresses = append(addresses, ln.Addr().String())
	}
	return addresses, nil
}

func (c *Controller) start(ctx context.Context, binary string, args, env []string, w *World) error {
	log, err := w.log(filepath.Base(c.Log))
	if err != nil {
		return err
	}
	binary, err = filepath.Abs(binary)
	if err != nil {
		return fmt.Errorf("find the controller: %w", err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	c.cmd = exec.CommandContext(life, binary, args...) //nolint:gosec // the program is the caller's choice
	c.cmd.Env = env
	c.cmd.Dir = filepath.Dir(c.token.kubeconfig)
	out := io.MultiWriter(log, c.end)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = childAttributes()
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = controllerGrace // then it is killed
	if err := c.cmd.Start(); err != nil {
		cancel()
		return fmt.Errorf("start the controller: %w", err)
	}
	go func() {
		defer close(c.done)
		err := c.cmd.Wait()
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			err = errors.New("exit status 0")
		}
		if !c.stopping {
			c.err = &ControllerError{Err: err, Log: c.Log, End: c.end.String()}
		}
	}()
	return nil
}

// awaitReady waits until the controller says that it is ready, or is gone.
func (c *Controller) awaitReady(ctx context.Context) error {
	client := directClient()
	defer client.CloseIdleConnections()
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		select {
		case <-c.done:
			return false, c.Err()
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.HealthURL+"/readyz", nil)
		if err != nil {
			return false, err
		}
		res, err := client.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return res.StatusCode == http.StatusOK, res.Body.Close()
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("lanyard-controller did not get ready; its log is %s: %w", c.Log, err)
	}
	return err
}

// Done is closed when the controller has ended, asked to or not.
func (c *Controller) Done() <-chan struct{} { return c.done }

// Err is nil while the controller runs and when it was stopped, a *ControllerError otherwise.
func (c *Controller) Err() error {
	select {
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	default:
		return nil
	}
}

// Kill ends the controller at once, as a node's failure would.
func (c *Controller) Kill() error {
	c.willStop()
	defer c.token.close()
	err := c.cmd.Process.Kill()
	<-c.done
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the controller: %w", err)
	}
	return nil
}

// Stop asks the controller to stop and waits for its end, which comes within 15 seconds; at the end of ctx it is killed.
// Stopping what has stopped does nothing.
func (c *Controller) Stop(ctx context.Context) error {
	c.willStop()
	c.cancel()
	defer c.token.close()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		_ = c.cmd.Process.Kill() // it may have ended by now
		<-c.done
		return fmt.Errorf("controller killed: %w", context.Cause(ctx))
	}
}

func (c *Controller) willStop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
}

// directClient reaches this machine, whatever proxy the environment names.
func directClient() *http.Client {
	return &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
}

// tailSize holds a final error and some lines before it.
const tailSize = 2 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailSize; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// String returns the tail, from a line's beginning on where it was cut.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.text
	if len(text) == tailSize {
		if _, rest, ok := bytes.Cut(text, []byte("\n")); ok {
			text = rest
		}
	}
	return strings.TrimSpace(string(text))
}
