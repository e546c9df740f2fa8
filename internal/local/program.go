package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/logtail"
)

// ProgramOptions configure [Cluster.StartProgram]. Workload and Binary are required.
type ProgramOptions struct {
	// Workload is the name of a StatefulSet or a Deployment, see [Cluster.Workloads].
	Workload string
	// Binary is the path of the workload's program on this machine.
	Binary string
	// Name is the name of the program's folder and log. Two programs of a cluster with the same
	// name share their volumes. They must not run at the same time. Default: the workload's name
	// without "lanyard-".
	Name string
	// Values, if not nil, are chart values for this program only. The program starts with the
	// arguments and the environment that the chart has with these values. The chart's objects are
	// not applied to the cluster. If nil, the program uses the values of the last installation.
	Values map[string]any
}

// Program is a running program of the chart.
type Program struct {
	// Workload is the name of the program's StatefulSet or Deployment.
	Workload string
	// Log is the path of the program's log file.
	Log string

	name   string // file name of the program in its container
	layout *layout
	ready  string // URL of the readiness probe
	cmd    *exec.Cmd
	cancel context.CancelFunc
	token  *tokenFile // nil if the pod mounts no token
	end    *logtail.Tail
	done   chan struct{}

	stopping atomic.Bool
	err      error // how the program ended; read after done is closed
}

// URL returns "http://127.0.0.1:<port>" for the name of a container's port, such as "metrics". It
// is empty if the container has no such port.
func (p *Program) URL(port string) string {
	address, ok := p.layout.ports[port]
	if !ok {
		return ""
	}
	return "http://" + address
}

// Ports returns the names of the container's ports, in alphabetical order.
func (p *Program) Ports() []string { return slices.Sorted(maps.Keys(p.layout.ports)) }

// PID returns the program's process ID, for measurements.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Folder returns the folder of a volume, such as "data". It is empty if the container does not
// mount that volume.
func (p *Program) Folder(volume string) string { return p.layout.folders[volume] }

// ProgramError reports a program that ended although nobody stopped it.
type ProgramError struct {
	// Program is the program's name, such as lanyard-controller.
	Program string
	// Err says how the process ended: an *exec.ExitError if its exit status was not 0.
	Err error
	// Log is the path of the log file. End has the last lines of the log.
	Log, End string
}

// Error includes the end of the log, which says why the program ended.
func (e *ProgramError) Error() string {
	return fmt.Sprintf("%s ended: %v; its log is %s and ends so:\n%s", e.Program, e.Err, e.Log, e.End)
}

// Unwrap returns how the process ended.
func (e *ProgramError) Unwrap() error { return e.Err }

// programGrace is the time for a program to stop before it is killed.
const programGrace = 15 * time.Second

// Workloads lists the workloads of the chart that was installed last.
func (c *Cluster) Workloads() []Workload {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chart.names()
}

// StartProgram starts a program with the arguments and the environment of its container in the
// chart. In both, ports and Service hosts become local addresses, and paths in volumes become local
// folders. If the pod mounts its ServiceAccount's token, the flag --kubeconfig names a kubeconfig
// with a token that is renewed. The Services may be of programs that were started before. The cloud
// serves the hosts of Ingresses that lead to the program. StartProgram returns once the readiness
// probe succeeds and the API server reaches the program's aggregated APIs. [Program.Stop] and
// [Cluster.Stop] end the program. It also ends with this process.
func (c *Cluster) StartProgram(ctx context.Context, o ProgramOptions) (p *Program, err error) {
	err = c.StartPrograms(ctx, []ProgramOptions{o}, func(ready *Program) { p = ready })
	return p, err
}

// StartPrograms starts programs that may need each other to become ready. It passes each program to
// the callback as soon as this program and its predecessors in the list are ready. If StartPrograms
// returns no error, all programs are ready; see [Cluster.StartProgram].
func (c *Cluster) StartPrograms(ctx context.Context, all []ProgramOptions, ready func(*Program)) (err error) {
	var started []*Program
	defer func() {
		if err != nil {
			for _, p := range slices.Backward(started) {
				err = errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
			}
		}
	}()
	for _, o := range all {
		p, err := c.launch(ctx, o)
		if err != nil {
			return err
		}
		started = append(started, p)
	}
	for _, p := range started {
		if err := p.awaitReady(ctx); err != nil {
			return err
		}
		if err := c.awaitAPIs(ctx, p.layout); err != nil {
			return err
		}
		ready(p)
	}
	return nil
}

// launch starts a program. Before that, it points the program's APIServices and Ingress hosts to
// it.
func (c *Cluster) launch(ctx context.Context, o ProgramOptions) (_ *Program, err error) {
	if err := CheckBinary(o.Binary, ""); err != nil {
		return nil, err
	}
	chart, err := c.chartOf(o)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(chart.workloads, func(w workload) bool { return w.Name == o.Workload })
	if at < 0 {
		return nil, fmt.Errorf("the chart has no StatefulSet or Deployment %q; install it first", o.Workload)
	}
	w := chart.workloads[at]
	services := chart.servicesOf(w)

	name := cmp.Or(o.Name, strings.TrimPrefix(w.Name, "lanyard-"))
	dir := c.Path(programsName, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the program's folder: %w", err)
	}
	p := &Program{Workload: w.Name, Log: c.Path(name + logSuffix), name: w.Program, end: &logtail.Tail{}, done: make(chan struct{})}
	defer func() {
		if err != nil {
			p.token.close()
			p.layout.release()
		}
	}()
	line, err := p.prepare(ctx, c, w, services, dir)
	if err != nil {
		return nil, fmt.Errorf("start %s as the chart says: %w", w.Name, err)
	}
	if w.pod.Spec.AutomountServiceAccountToken == nil || *w.pod.Spec.AutomountServiceAccountToken {
		if p.token, err = c.newTokenFile(ctx, cmp.Or(w.pod.Spec.ServiceAccountName, "default"), dir); err != nil {
			return nil, err
		}
		line.args = append(line.args, "--kubeconfig="+p.token.kubeconfig)
	}
	if err := errors.Join(c.aggregate(ctx, p.layout), c.expose(p.layout)); err != nil {
		return nil, err
	}
	if err := p.start(ctx, c, o.Binary, line); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.programs = append(c.programs, p)
	c.mu.Unlock()
	go c.note(p.done, p.Err)
	return p, nil
}

// hosts maps host and port of the Services of all programs so far to the programs' addresses.
func (c *Cluster) hosts() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := map[string]string{}
	for _, p := range c.programs {
		maps.Copy(hosts, p.layout.hosts)
	}
	return hosts
}

// chartOf returns the chart from which to start a program: the installed chart, or one rendered
// with the program's own values.
func (c *Cluster) chartOf(o ProgramOptions) (rendered, error) {
	if o.Values == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.chart, nil
	}
	objects, err := c.render(o.Values)
	if err != nil {
		return rendered{}, err
	}
	return readChart(objects)
}

// commandLine holds the arguments, the environment and the working folder of a process.
type commandLine struct {
	args, env []string
	dir       string
}

// prepare makes the program's volumes below a folder, and returns the program's command line.
func (p *Program) prepare(
	ctx context.Context, c *Cluster, w workload, services []corev1.Service, dir string,
) (line commandLine, err error) {
	line.dir = dir
	if p.layout, err = newLayout(w, services, c.hosts(), filepath.Join(dir, "volumes")); err != nil {
		return line, err
	}
	if p.ready, err = p.layout.probe(w.container); err != nil {
		return line, err
	}
	if line.args, err = p.layout.arguments(w.container); err != nil {
		return line, err
	}
	if line.env, err = p.layout.environment(w.container); err != nil {
		return line, err
	}
	if err := p.layout.checkUsed(); err != nil {
		return line, err
	}
	return line, c.fill(ctx, w, p.layout)
}

func (p *Program) start(ctx context.Context, c *Cluster, binary string, line commandLine) error {
	log, err := c.log(p.Log)
	if err != nil {
		return err
	}
	binary, err = filepath.Abs(binary)
	if err != nil {
		return fmt.Errorf("find %s: %w", p.name, err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	p.cmd = exec.CommandContext(life, binary, line.args...) //nolint:gosec // the program is the caller's choice
	p.cmd.Env, p.cmd.Dir = line.env, line.dir
	out := io.MultiWriter(log, p.end)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = childAttributes()
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = programGrace // after this time the process is killed
	if err := p.cmd.Start(); err != nil {
		cancel()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		defer close(p.done)
		err := p.cmd.Wait()
		cancel()
		p.layout.release()
		if !p.stopping.Load() {
			p.err = &ProgramError{Program: p.name, Err: cmp.Or(err, errors.New("exit status 0")), Log: p.Log, End: p.end.String()}
		}
	}()
	return nil
}

// awaitReady waits until the readiness probe succeeds or the program has ended.
func (p *Program) awaitReady(ctx context.Context) error {
	client := directClient()
	defer client.CloseIdleConnections()
	// Like a kubelet, do not verify the certificate of a probe.
	client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	err := poll(ctx, pollInterval, func(ctx context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, p.Err()
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, nil)
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
		return fmt.Errorf("%s did not become ready; its log is %s: %w", p.name, p.Log, err)
	}
	return err
}

// Done returns a channel that is closed when the program has ended, for whatever reason.
func (p *Program) Done() <-chan struct{} { return p.done }

// Err returns a *ProgramError if the program ended although nobody stopped it, and nil otherwise.
func (p *Program) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Kill ends the program at once, as a node's failure would.
func (p *Program) Kill() error {
	p.stopping.Store(true)
	defer p.token.close()
	err := p.cmd.Process.Kill()
	<-p.done
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	return nil
}

// Stop asks the program to stop, and waits for its end. After 15 seconds, the program is killed. If
// ctx ends earlier, Stop kills the program and returns an error. Stop does nothing for a program
// that has already ended.
func (p *Program) Stop(ctx context.Context) error {
	p.stopping.Store(true)
	p.cancel()
	defer p.token.close()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		_ = p.cmd.Process.Kill() // the process may have ended by now
		<-p.done
		return fmt.Errorf("%s killed: %w", p.name, context.Cause(ctx))
	}
}

// directClient returns a client that uses no proxy, even if the environment sets one.
func directClient() *http.Client {
	return &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
}
