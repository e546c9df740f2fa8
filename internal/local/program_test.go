package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/internal/chart"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// modeVar is the name of an environment variable. If the variable has a value, the test binary acts
// as a program that Lanyard's Helm chart deploys. The value is the argument of [fakeProgram].
const modeVar = "LANYARD_FAKE_PROGRAM"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		os.Exit(fakeProgram(mode))
	}
	os.Exit(m.Run())
}

func fakeProgram(mode string) int {
	fmt.Println("args", strings.Join(os.Args[1:], " "))
	fmt.Println("env", strings.Join(os.Environ(), " "))
	if mode == "crashing" {
		fmt.Fprintln(os.Stderr, "find the API server: no such host")
		return 3
	}
	var address string
	for _, arg := range os.Args {
		if value, ok := strings.CutPrefix(arg, "--health-address="); ok {
			address = value
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return 9
	}
	asked := 0
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 { // the first two probes fail
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if mode == "doomed" && asked > 3 {
			os.Exit(4)
		}
	}))
	<-stop
	fmt.Println("stopped in order")
	return 0
}

// clusterWithChart returns a cluster with only a chart and an API server that issues the given
// tokens.
func clusterWithChart(t *testing.T, mode string, tokens ...string) *Cluster {
	t.Helper()
	values := map[string]any{
		"image":    map[string]any{"repository": "localhost/lanyard-controller"},
		"extraEnv": []any{map[string]any{"name": modeVar, "value": mode}, map[string]any{"name": "EMPTY", "value": ""}},
		"identity": map[string]any{"awsRegion": Region},
	}
	objects, err := chart.Objects(chart.Release{Name: Release, Namespace: Namespace, Values: values})
	must.Succeed(t, err)
	c := &Cluster{dir: t.TempDir(), ended: make(chan struct{}), server: "https://127.0.0.1:6443"}
	c.serverCA = c.Path("ca.crt")
	for _, o := range objects {
		must.Succeed(t, c.chart.add(o))
	}
	authority, err := cloudtest.New(cloudtest.Config{}) // the kubeconfig names this CA file; any CA will do
	must.Succeed(t, err)
	must.Succeed(t, errors.Join(authority.WriteCA(c.serverCA), authority.Close()))
	api := fake.NewClientset()
	api.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		if create.Namespace != Namespace || create.Name != "lanyard-controller" || create.Subresource != "token" {
			return true, nil, fmt.Errorf("unexpected: create %s/%s/%s", create.Namespace, create.Name, create.Subresource)
		}
		if len(tokens) == 0 {
			return true, nil, errors.New("no token is left")
		}
		token := tokens[0]
		tokens = tokens[1:]
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: token}}, nil
	})
	c.typed = api
	return c
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	must.Succeed(t, err)
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	return string(data)
}

// TestStartProgram asserts that a program starts with the chart's arguments and environment and a
// token of its own. It must inherit nothing from this process.
func TestStartProgram(t *testing.T) {
	t.Setenv("OF_THE_PARENT", "must not be inherited")
	cluster := clusterWithChart(t, "obedient", "first-token")
	c, err := cluster.StartProgram(t.Context(), ProgramOptions{Workload: "lanyard-controller", Binary: self(t)})
	must.Succeed(t, err)
	res, err := http.Get(c.URL("health") + "/readyz")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("started, but not ready: %v", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("runs, but ended: %v", err)
	}
	kubeconfig := cluster.Path("programs", "controller", "kubeconfig")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must.Succeed(t, err)
	if got := read(t, config.BearerTokenFile); got != "first-token" {
		t.Errorf("token is %q", got)
	}
	if config.CertFile != "" || config.KeyFile != "" || config.Username != "" {
		t.Error("the kubeconfig has another credential than the token")
	}
	for _, path := range []string{kubeconfig, config.BearerTokenFile} {
		info, err := os.Stat(path)
		must.Succeed(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	must.Succeed(t, cluster.Stop(t.Context()))
	log := read(t, c.Log)
	if !strings.Contains(log, "stopped in order") {
		t.Errorf("was not asked to stop:\n%s", log)
	}
	lines := strings.Split(log, "\n")
	if want := "env GOMEMLIMIT=1073741824 " + modeVar + "=obedient EMPTY="; lines[1] != want {
		t.Errorf("has %q in its environment, want %q", lines[1], want)
	}
	args := strings.Fields(lines[0])[1:]
	chartArgs := cluster.chart.workloads[0].container.Args
	if len(args) != len(chartArgs)+1 || args[len(args)-1] != "--kubeconfig="+kubeconfig {
		t.Fatalf("has arguments %q; the chart gives %q", args, chartArgs)
	}
	var changed []string
	for i, arg := range chartArgs {
		if arg != args[i] {
			name, _, _ := strings.Cut(arg, "=")
			changed = append(changed, name)
		}
	}
	want := []string{"--storage-path", "--artifact-listen-address", "--artifact-base-url", "--metrics-address", "--health-address"}
	if !slices.Equal(changed, want) {
		t.Errorf("changes arguments %q, may change %q", changed, want)
	}
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--artifact-listen-address="); ok && !strings.HasPrefix(value, "127.0.0.1:") {
			t.Errorf("listens beyond this machine: %s", arg)
		}
	}
}

// TestStartProgramWithValues starts a program with chart values of its own. The cluster's chart
// must not change.
func TestStartProgramWithValues(t *testing.T) {
	cluster := clusterWithChart(t, "obedient", "token")
	cloud, err := StartCloud(t.Context(), CloudOptions{Dir: filepath.Join(t.TempDir(), "cloud")})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = cloud.Stop() })
	cluster.cloud = cloud
	c, err := cluster.StartProgram(t.Context(), ProgramOptions{
		Workload: "lanyard-controller", Binary: self(t),
		Values: map[string]any{
			"extraEnv":   []any{map[string]any{"name": modeVar, "value": "obedient"}},
			"tokenCache": map[string]any{"maxDuration": "12s"},
		},
	})
	must.Succeed(t, err)
	must.Succeed(t, c.Stop(t.Context()))
	const argument = "--token-cache-max-duration=12s"
	if log := read(t, c.Log); !strings.Contains(log, argument) {
		t.Errorf("it was not started with %s:\n%s", argument, log)
	}
	if args := cluster.chart.workloads[0].container.Args; slices.Contains(args, argument) {
		t.Errorf("the cluster's chart has the program's own values: %q", args)
	}
	if _, err := cluster.StartProgram(t.Context(), ProgramOptions{
		Workload: "lanyard-controller", Binary: self(t), Values: map[string]any{"tokenCache": map[string]any{"maxDuration": 12}},
	}); err == nil {
		t.Error("values that the chart does not accept start a program")
	}
}

// TestProgramCrash asserts that a crash is noticed at once, before or after the program is ready.
// If the program was not ready, the error must say why it ended.
func TestProgramCrash(t *testing.T) {
	t.Run("before it is ready", func(t *testing.T) {
		cluster := clusterWithChart(t, "crashing", "token")
		_, err := cluster.StartProgram(t.Context(), ProgramOptions{Workload: "lanyard-controller", Binary: self(t)})
		var ended *ProgramError
		if !errors.As(err, &ended) {
			t.Fatalf("got %v", err)
		}
		if !strings.Contains(ended.Error(), "no such host") || !strings.Contains(ended.Error(), ended.Log) {
			t.Errorf("does not say why: %v", ended)
		}
	})
	t.Run("later", func(t *testing.T) {
		cluster := clusterWithChart(t, "doomed", "token")
		c, err := cluster.StartProgram(t.Context(), ProgramOptions{Workload: "lanyard-controller", Binary: self(t)})
		must.Succeed(t, err)
		http.Get(c.URL("health")) // this request ends the program
		<-cluster.Ended()
		var ended *ProgramError
		if err := c.Err(); !errors.As(err, &ended) {
			t.Errorf("got %v", err)
		}
		if err := cluster.Stop(t.Context()); err != nil {
			t.Errorf("stopping what has ended: %v", err)
		}
	})
}

func TestKillProgram(t *testing.T) {
	cluster := clusterWithChart(t, "obedient", "token", "token")
	c, err := cluster.StartProgram(t.Context(), ProgramOptions{Workload: "lanyard-controller", Binary: self(t), Name: "first"})
	must.Succeed(t, err)
	must.Succeed(t, c.Kill())
	if strings.Contains(read(t, c.Log), "stopped in order") {
		t.Error("was asked to stop")
	}
	if err := c.Err(); err != nil {
		t.Errorf("killed on purpose, but: %v", err)
	}
	if _, err := cluster.StartProgram(t.Context(), ProgramOptions{Workload: "lanyard-controller", Binary: self(t), Name: "first"}); err != nil {
		t.Errorf("cannot start again: %v", err)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartProgramRefuses(t *testing.T) {
	cluster := clusterWithChart(t, "obedient")
	const workload = "lanyard-controller"
	for name, tc := range map[string]struct {
		options ProgramOptions
		want    string
	}{
		"no program":  {ProgramOptions{Workload: workload, Binary: filepath.Join(t.TempDir(), "nothing")}, "make build"},
		"a folder":    {ProgramOptions{Workload: workload, Binary: t.TempDir()}, "is a folder"},
		"no workload": {ProgramOptions{Workload: "other", Binary: self(t)}, `no StatefulSet or Deployment "other"`},
		"no token":    {ProgramOptions{Workload: workload, Binary: self(t)}, "no token is left"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := cluster.StartProgram(t.Context(), tc.options); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something with %q", err, tc.want)
			}
		})
	}
}

// TestClientRereadsToken asserts that a client with the kubeconfig sends the renewed token: the
// kubeconfig must refer to the file that the renewal writes.
func TestClientRereadsToken(t *testing.T) {
	cluster := clusterWithChart(t, "obedient", "first", "second")
	f, err := cluster.newTokenFile(t.Context(), "lanyard-controller", t.TempDir())
	must.Succeed(t, err)
	t.Cleanup(f.close)
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	must.Succeed(t, err)
	must.Succeed(t, f.renew(t.Context()))
	var sent string
	wrapped, err := rest.HTTPWrappersForConfig(config, roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = req.Header.Get("Authorization")
		return nil, errors.New("not sent")
	}))
	must.Succeed(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1/", nil)
	must.Succeed(t, err)
	wrapped.RoundTrip(req)
	if sent != "Bearer second" {
		t.Errorf("sends %q after the renewal", sent)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestPollEnds(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, cause)
	defer cancel()
	if err := poll(ctx, pollInterval, func(context.Context) (bool, error) { return false, nil }); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// TestRenewal asserts that a token is renewed at half its life, that a failed renewal is repeated,
// and that no renewal runs after close.
func TestRenewal(t *testing.T) {
	cluster := clusterWithChart(t, "obedient", "first", "second")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f, err := cluster.newTokenFile(t.Context(), "lanyard-controller", dir)
		must.Succeed(t, err)
		for _, step := range []struct {
			wait  time.Duration
			token string
			// The API server has no third token, so the last renewal fails.
		}{{renewAfter - time.Second, "first"}, {2 * time.Second, "second"}, {tokenLife, "second"}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if got := read(t, filepath.Join(dir, "token")); got != step.token {
				t.Errorf("%s later the token is %q, want %q", step.wait, got, step.token)
			}
		}
		f.close() // waits for the renewal's goroutine; synctest fails if a goroutine is left
	})
}
