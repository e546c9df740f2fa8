package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
)

// PeerUser is the API server's name for the user of [World.WritePeerKubeconfig].
const PeerUser = "system:serviceaccount:default:bench"

// WritePeerKubeconfig creates the ServiceAccount [PeerUser], which may do everything. Then
// WritePeerKubeconfig writes a kubeconfig file of this account.
func (w *World) WritePeerKubeconfig(ctx context.Context, path string) error {
	var token []byte
	for _, args := range [][]string{
		{"serviceaccount", "bench"},
		{"clusterrolebinding", "bench", "--clusterrole=cluster-admin", "--serviceaccount=default:bench"},
		{"token", "bench", "--duration=24h"},
	} {
		out, err := w.Kubectl(ctx, append([]string{"create"}, args...)...).Output()
		if err != nil {
			return fmt.Errorf("kubectl create %s: %w", args[0], err)
		}
		token = out
	}
	config, err := clientcmd.LoadFromFile(w.Kubeconfig())
	if err != nil {
		return err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(string(token))}
	}
	return clientcmd.WriteToFile(*config, path)
}

// InstallCRDs installs the CRDs in a folder, and waits until the CRDs are established.
func (w *World) InstallCRDs(ctx context.Context, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("there are no CRDs in %q", folder)
	}
	var crds []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // a folder of the caller's choice
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &o.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		crds = append(crds, o)
	}
	return w.Install(ctx, crds)
}

// PeerOptions describe a program that is measured and does not come from the chart.
type PeerOptions struct {
	Binary string // path
	Args   []string
	Env    []string // further variables, as NAME=VALUE
	Log    string   // path; the output is appended
	Health string   // address that serves /readyz
}

// Peer is a running program that does not come from the chart.
type Peer struct {
	// Ready is the time from the start until the program was ready.
	Ready time.Duration
	// PID is the number of the process.
	PID int

	stop func()
}

// Stop ends the program and waits for its end.
func (p *Peer) Stop() { p.stop() }

// StartPeer starts a program and waits until the program is ready. If the program does not become
// ready, StartPeer stops the program and returns an error.
func (w *World) StartPeer(ctx context.Context, o PeerOptions) (*Peer, error) {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process writes it
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(life, o.Binary, o.Args...) //nolint:gosec // the program is the caller's choice
	cmd.Env, cmd.Stdout, cmd.Stderr = slices.Concat(os.Environ(), o.Env), log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second // from SIGTERM until the process is killed
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	ended, end := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		end(fmt.Errorf("%s has ended: %v", filepath.Base(o.Binary), cmd.Wait())) //nolint:errorlint // it may be nil
	}()
	p := &Peer{PID: cmd.Process.Pid, stop: func() { cancel(); <-done }}
	err = w.Await(ended, 2*time.Millisecond, func(ctx context.Context) error {
		_, err := metrics.Read(ctx, w.Direct, "http://"+o.Health+"/readyz")
		return err
	})
	if err != nil {
		p.Stop()
		return nil, err
	}
	p.Ready = time.Since(begin)
	return p, nil
}
