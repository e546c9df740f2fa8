package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/controlplane"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	// modeVar is the name of an environment variable. If the variable is set, the test binary acts
	// as a fake control plane, and runs no tests. The variable's value is the fake's mode.
	modeVar = "LANYARD_FAKE_CONTROLPLANE"
	// reportVar is the environment variable with a TCP address. A fake connects to this address and
	// reports when it is up and when it stops. The test sees the end of the fake's process, because
	// the connection is closed then.
	reportVar = "LANYARD_FAKE_REPORT"
	// addedVar is the environment variable with text that a fake adds to its log, so that the test
	// sees the fake's environment.
	addedVar = "LANYARD_FAKE_ADDED"

	server = "https://127.0.0.1:6443"
	issuer = "https://issuer.example/id/1"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		os.Exit(fake(mode))
	}
	os.Exit(m.Run())
}

// fake is the main function of a fake control plane.
func fake(mode string) int {
	switch mode {
	case "obedient":
		args, err := json.Marshal(os.Args[1:])
		if err != nil {
			return 9
		}
		fmt.Printf("%s\netcd is up\nready %s\n", args, server)
		fmt.Fprintln(os.Stderr, "a log line"+os.Getenv(addedVar))
		report := func(string) {}
		if address := os.Getenv(reportVar); address != "" {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				return 9
			}
			report = func(line string) { fmt.Fprintln(conn, line) }
		}
		report("up")
		io.Copy(io.Discard, os.Stdin)
		report("stopping")
		fmt.Println("stopping: standard input ended")
		return 0
	case "disorderly": // stops when asked to, but with an error
		fmt.Printf("ready %s\n", server)
		io.Copy(io.Discard, os.Stdin)
		fmt.Fprintln(os.Stderr, "Error: stop etcd: still running after 2s")
		return 1
	case "refusing":
		fmt.Println("etcd is up")
		fmt.Fprintln(os.Stderr, "Error: directory is in use by another control plane")
		return 1
	case "crashing": // gets ready, and ends as soon as a client connects
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 9
		}
		fmt.Printf("ready https://%s\n", l.Addr())
		if _, err := l.Accept(); err != nil {
			return 9
		}
		fmt.Fprintln(os.Stderr, strings.Repeat("long log\n", 1000)+"Error: disk full")
		return 3
	case "slow": // never gets ready, and does not stop when asked to
		fmt.Println("etcd is up")
		select {}
	case "deaf":
		fmt.Printf("ready %s\n", server)
		time.Sleep(time.Hour) // select {} would end the program by a deadlock
	case "owner": // starts another fake in mode obedient, and waits to be killed
		os.Setenv(modeVar, "obedient")
		if _, err := controlplane.Start(context.Background(), options(os.Args[1])); err != nil {
			fmt.Println(err)
			return 9
		}
		fmt.Println("owner is up")
		select {}
	}
	return 9
}

func options(dir string) controlplane.Options {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return controlplane.Options{Binary: self, Dir: dir, Issuer: issuer}
}

func TestStartPassesOptions(t *testing.T) {
	t.Setenv(modeVar, "obedient")
	dir := t.TempDir()
	base := []string{"serve", "--stop-with-stdin", "--data-dir=" + dir, "--service-account-issuer=" + issuer}
	for _, tt := range []struct {
		name  string
		edit  func(*controlplane.Options)
		want  []string
		added string
	}{
		{"required ones only", func(*controlplane.Options) {}, base, ""},
		{"all", func(o *controlplane.Options) {
			o.AuthenticationConfig = "/etc/issuers.yaml"
			o.Env = []string{addedVar + "=, and more"}
		}, append(slices.Clone(base), "--authentication-config=/etc/issuers.yaml"), ", and more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(dir)
			tt.edit(&o)
			var steps []string
			o.Progress = func(step string) { steps = append(steps, step) }
			var log bytes.Buffer
			o.Log = &log

			cp, err := controlplane.Start(t.Context(), o)
			must.Succeed(t, err)
			if cp.Server() != server {
				t.Errorf("Server() = %q", cp.Server())
			}
			if want := filepath.Join(dir, "admin.kubeconfig"); cp.Kubeconfig() != want {
				t.Errorf("Kubeconfig() = %q, want %q", cp.Kubeconfig(), want)
			}
			if want := filepath.Join(dir, "ca.crt"); cp.CAFile() != want {
				t.Errorf("CAFile() = %q, want %q", cp.CAFile(), want)
			}
			if want := []string{o.Binary, "kubectl", "--kubeconfig", cp.Kubeconfig(), "get", "ns"}; !slices.Equal(cp.Kubectl(t.Context(), "get", "ns").Args, want) {
				t.Errorf("Kubectl() runs %q, want %q", cp.Kubectl(t.Context(), "get", "ns").Args, want)
			}
			if err := cp.Err(); err != nil {
				t.Errorf("Err() = %v while it runs", err)
			}
			if err := cp.Stop(t.Context()); err != nil {
				t.Errorf("Stop() = %v", err)
			}
			if err := cp.Err(); !errors.Is(err, controlplane.ErrStopped) {
				t.Errorf("Err() = %v after Stop", err)
			}
			if err := cp.Stop(t.Context()); err != nil {
				t.Errorf("second Stop() = %v", err)
			}

			// Progress must not get the lines that the fake prints while the fake stops.
			if len(steps) != 2 || steps[1] != "etcd is up" {
				t.Fatalf("steps = %q", steps)
			}
			var args []string
			must.Succeed(t, json.Unmarshal([]byte(steps[0]), &args))
			if !slices.Equal(args, tt.want) {
				t.Errorf("arguments = %q\nwant %q", args, tt.want)
			}
			if want := "a log line" + tt.added + "\n"; log.String() != want {
				t.Errorf("log = %q", &log)
			}
		})
	}
}

func TestStartRequires(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]controlplane.Options{
		"Binary": {Dir: "d", Issuer: issuer},
		"Dir":    {Binary: "b", Issuer: issuer},
		"Issuer": {Binary: "b", Dir: "d"},
	} {
		if _, err := controlplane.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "Options."+field) {
			t.Errorf("without %s: %v", field, err)
		}
	}
	o := options(t.TempDir())
	o.Binary = filepath.Join(t.TempDir(), "absent")
	if _, err := controlplane.Start(t.Context(), o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with an absent binary: %v", err)
	}
}

func TestStartTellsWhyItFailed(t *testing.T) {
	t.Setenv(modeVar, "refusing")
	_, err := controlplane.Start(t.Context(), options(t.TempDir()))
	var exit *controlplane.ExitError
	if !errors.As(err, &exit) || exit.Log != "Error: directory is in use by another control plane" {
		t.Fatalf("Start() = %v, want an ExitError with the log's end", err)
	}
	var status *exec.ExitError
	if !errors.As(err, &status) || status.ExitCode() != 1 {
		t.Errorf("the exit status is lost: %v", err)
	}
}

func TestStartEndsWithContext(t *testing.T) {
	t.Setenv(modeVar, "slow")
	ctx, cancel := context.WithCancelCause(t.Context())
	impatient := errors.New("impatient")
	o := options(t.TempDir())
	o.Progress = func(string) { cancel(impatient) }
	if _, err := controlplane.Start(ctx, o); !errors.Is(err, impatient) {
		t.Errorf("Start() = %v, want the context's cause", err)
	}
}

// A started control plane must outlive the context that bounded its start.
func TestContextOfStartHasNoLaterEffect(t *testing.T) {
	t.Setenv(modeVar, "obedient")
	ctx, cancel := context.WithCancel(t.Context())
	cp, err := controlplane.Start(ctx, options(t.TempDir()))
	must.Succeed(t, err)
	cancel()
	if err := cp.Stop(t.Context()); err != nil {
		t.Errorf("Stop() = %v: it did not end by being asked to", err)
	}
}

func TestStopKillsTheDeaf(t *testing.T) {
	t.Setenv(modeVar, "deaf")
	cp, err := controlplane.Start(t.Context(), options(t.TempDir()))
	must.Succeed(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := cp.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop() = %v, want the deadline", err)
	}
	select {
	case <-cp.Done():
	default:
		t.Error("Stop returned while the process runs")
	}
}

func TestStopReportsDisorder(t *testing.T) {
	t.Setenv(modeVar, "disorderly")
	cp, err := controlplane.Start(t.Context(), options(t.TempDir()))
	must.Succeed(t, err)
	if err := cp.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "stop etcd: still running") {
		t.Errorf("Stop() = %v, want the reason", err)
	}
}

func TestCrashIsNoticed(t *testing.T) {
	t.Setenv(modeVar, "crashing")
	cp, err := controlplane.Start(t.Context(), options(t.TempDir()))
	must.Succeed(t, err)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(cp.Server(), "https://"))
	must.Succeed(t, err)
	defer conn.Close()
	<-cp.Done()

	var exit *controlplane.ExitError
	if !errors.As(cp.Err(), &exit) || !strings.HasSuffix(exit.Log, "Error: disk full") {
		t.Fatalf("Err() = %v, want an ExitError with the log's end", cp.Err())
	}
	if len(exit.Log) > 2<<10 {
		t.Errorf("the error holds %d bytes of log", len(exit.Log))
	}
	if err := cp.Stop(t.Context()); !errors.As(err, &exit) {
		t.Errorf("Stop() = %v, want the crash", err)
	}
}

// A control plane must end when the process that started it, the owner, is killed and cannot stop
// it.
func TestEndsWithItsOwner(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()

	self, err := os.Executable()
	must.Succeed(t, err)
	owner := exec.CommandContext(t.Context(), self, t.TempDir())
	owner.Env = append(os.Environ(), modeVar+"=owner", reportVar+"="+l.Addr().String())
	stdout, err := owner.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, owner.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "owner is up\n" {
		t.Fatalf("owner said %q: %v", line, err)
	}
	conn, err := l.Accept()
	must.Succeed(t, err)
	defer conn.Close()

	must.Succeed(t, owner.Process.Kill())
	if err := owner.Wait(); err == nil {
		t.Error("the owner ended before it was killed")
	}
	report, err := io.ReadAll(conn) // ends when the child's process does
	must.Succeed(t, err)
	if string(report) != "up\nstopping\n" {
		t.Errorf("child reported %q, want that it stopped in order", report)
	}
}
