package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
)

// program is one of the two controllers: what sets it apart.
type program struct {
	name, binary, crds string
	// kind is its OCIRepository.
	kind schema.GroupVersionKind
	// request is the annotation that asks for a reconciliation.
	request string
	// args are its flags. Its store is dir; it serves artifacts, metrics and health at the three
	// addresses.
	args func(l *lab, dir string, listen [3]string) []string
}

func lanyard(s settings) program {
	return program{
		name: "lanyard", binary: s.lanyard, crds: s.lanyardCRDs,
		kind:    schema.GroupVersionKind{Group: "toolkit.lanyard.dev", Version: "v1alpha1", Kind: "OCIRepository"},
		request: "lanyard.dev/reconcile-requested-at",
		args: func(l *lab, dir string, listen [3]string) []string {
			return []string{
				"--storage-path=" + dir, "--artifact-listen-address=" + listen[0], "--artifact-base-url=http://" + listen[0],
				"--metrics-address=" + listen[1], "--health-address=" + listen[2], "--concurrent=10",
				"--allowed-endpoint-hosts=" + l.registry.hosts(), "--kubeconfig=" + l.kubeconfig,
			}
		},
	}
}

func flux(s settings) program {
	return program{
		name: "flux", binary: s.flux, crds: s.fluxCRDs,
		kind:    schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "OCIRepository"},
		request: "reconcile.fluxcd.io/requestedAt",
		args: func(_ *lab, dir string, listen [3]string) []string {
			return []string{
				"--storage-path=" + dir, "--storage-addr=" + listen[0], "--storage-adv-addr=" + listen[0],
				"--metrics-addr=" + listen[1], "--health-addr=" + listen[2], "--concurrent=10",
				"--feature-gates=ObjectLevelWorkloadIdentity=true", "--token-cache-max-size=10000",
			}
		},
	}
}

// process is a program that runs.
type process struct {
	cmd             *exec.Cmd
	http            *http.Client
	metrics, health string // URLs
	ready           time.Duration
	done            chan struct{}
}

// start starts the program with a store in dir and these addresses of artifacts, metrics and
// health, and returns when it is ready.
func (p program) start(ctx context.Context, l *lab, dir string, listen [3]string) (*process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // our own folder
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has it
	binary, err := filepath.Abs(p.binary)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, p.args(l, dir, listen)...) //nolint:gosec // the program is the caller's choice
	cmd.Env = slices.Concat(os.Environ(), l.env, []string{"KUBECONFIG=" + l.kubeconfig, "RUNTIME_NAMESPACE=default"})
	cmd.Stdout, cmd.Stderr = log, log
	proc := &process{
		cmd: cmd, http: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second},
		metrics: "http://" + listen[1], health: "http://" + listen[2] + "/readyz", done: make(chan struct{}),
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(proc.done)
		_ = cmd.Wait()
	}()
	if err := l.await(ctx, 2*time.Millisecond, proc.isReady); err != nil {
		return nil, errors.Join(err, proc.stop())
	}
	proc.ready = time.Since(begin)
	return proc, nil
}

func (p *process) isReady(ctx context.Context) (bool, error) {
	select {
	case <-p.done:
		return false, errors.New("the program has ended")
	default:
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health, http.NoBody)
	if err != nil {
		return false, err
	}
	res, err := p.http.Do(req)
	if err != nil {
		return false, nil //nolint:nilerr // it does not listen yet
	}
	return res.StatusCode == http.StatusOK, res.Body.Close()
}

func (p *process) stop() error {
	defer p.http.CloseIdleConnections()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return nil
}

// usage reads what the process has used so far.
func (p *process) usage(ctx context.Context) (metrics.Process, error) {
	return metrics.ScrapeProcess(ctx, p.http, p.metrics)
}

// within bounds a wait.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("it did not happen within ten minutes"))
}

// await asks until the answer is yes.
func (l *lab) await(ctx context.Context, pause time.Duration, ask func(context.Context) (bool, error)) error {
	ctx, cancel := within(ctx)
	defer cancel()
	for {
		if err := l.cluster.Err(); err != nil {
			return err
		}
		done, err := ask(ctx)
		if done || err != nil {
			return err
		}
		if err := fleet.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("waiting: %w", err)
		}
	}
}
