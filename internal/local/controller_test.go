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
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/internal/chart"
)

// modeVar makes the test binary a stand-in for lanyard-controller.
const modeVar = "LANYARD_FAKE_CONTROLLER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		os.Exit(fakeController(mode))
	}
	os.Exit(m.Run())
}

func fakeController(mode string) int {
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
		if asked++; asked < 3 { // not ready at once
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

// worldWithChart is a world with a chart and an API server that gives tokens, and nothing else.
func worldWithChart(t *testing.T, mode string, tokens ...string) *World {
	t.Helper()
	f, err := claim(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{
		"image":    map[string]any{"repository": "localhost/lanyard-controller"},
		"env":      []any{map[string]any{"name": modeVar, "value": mode}, map[string]any{"name": "EMPTY", "value": ""}},
		"identity": map[string]any{"awsRegion": Region},
	}
	objects, err := chart.Objects(chart.Release{Name: Release, Namespace: Namespace, Values: values})
	if err != nil {
		t.Fatal(err)
	}
	w := &World{
		folder: f, ended: make(chan struct{}), server: "https://127.0.0.1:6443", serverCA: f.join("ca.crt"),
		statefulset: map[string]container{}, pushed: map[string]string{},
	}
	for _, o := range objects {
		if o.GetKind() == "StatefulSet" {
			if w.statefulset[o.GetName()], err = controllerOf(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	authority, err := cloudtest.New(cloudtest.Config{}) // any certificate
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(authority.WriteCA(w.serverCA), authority.Close()); err != nil {
		t.Fatal(err)
	}
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
	w.typed = api
	return w
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestStartController holds what a controller is started with: the chart's arguments and environment, a token of its own, and
// nothing of this process.
func TestStartController(t *testing.T) {
	t.Setenv("OF_THE_PARENT", "must not be inherited")
	w := worldWithChart(t, "obedient", "first-token")
	c, err := w.StartController(t.Context(), ControllerOptions{Binary: self(t)})
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Get(c.HealthURL + "/readyz")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("started, but not ready: %v", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("runs, but ended: %v", err)
	}
	kubeconfig := w.Path("controllers", "controller", "kubeconfig")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, config.BearerTokenFile); got != "first-token" {
		t.Errorf("token is %q", got)
	}
	if config.CertFile != "" || config.KeyFile != "" || config.Username != "" {
		t.Error("the kubeconfig has another credential than the token")
	}
	for _, path := range []string{kubeconfig, config.BearerTokenFile} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := read(t, c.Log)
	if !strings.Contains(log, "stopped in order") {
		t.Errorf("was not asked to stop:\n%s", log)
	}
	lines := strings.Split(log, "\n")
	if want := "env GOMEMLIMIT=1073741824 " + modeVar + "=obedient EMPTY="; lines[1] != want {
		t.Errorf("has %q in its environment, want %q", lines[1], want)
	}
	args := strings.Fields(lines[0])[1:]
	chartArgs := w.statefulset["lanyard-controller"].args
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

// TestControllerCrash holds that a controller which ends by itself is noticed at once, before it is ready and after, and says why.
func TestControllerCrash(t *testing.T) {
	t.Run("before it is ready", func(t *testing.T) {
		w := worldWithChart(t, "crashing", "token")
		_, err := w.StartController(t.Context(), ControllerOptions{Binary: self(t)})
		var ended *ControllerError
		if !errors.As(err, &ended) {
			t.Fatalf("got %v", err)
		}
		if !strings.Contains(ended.Error(), "no such host") || !strings.Contains(ended.Error(), ended.Log) {
			t.Errorf("does not say why: %v", ended)
		}
	})
	t.Run("later", func(t *testing.T) {
		w := worldWithChart(t, "doomed", "token")
		c, err := w.StartController(t.Context(), ControllerOptions{Binary: self(t)})
		if err != nil {
			t.Fatal(err)
		}
		http.Get(c.HealthURL) // which ends it
		<-w.Ended()
		var ended *ControllerError
		if err := c.Err(); !errors.As(err, &ended) {
			t.Errorf("got %v", err)
		}
		if err := w.Stop(t.Context()); err != nil {
			t.Errorf("stopping what has ended: %v", err)
		}
	})
}

func TestKillController(t *testing.T) {
	w := worldWithChart(t, "obedient", "token", "token")
	c, err := w.StartController(t.Context(), ControllerOptions{Binary: self(t), Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(read(t, c.Log), "stopped in order") {
		t.Error("was asked to stop")
	}
	if err := c.Err(); err != nil {
		t.Errorf("killed on purpose, but: %v", err)
	}
	if _, err := w.StartController(t.Context(), ControllerOptions{Binary: self(t), Name: "first"}); err != nil {
		t.Errorf("cannot start again: %v", err)
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartControllerRefuses(t *testing.T) {
	w := worldWithChart(t, "obedient")
	for name, tc := range map[string]struct {
		options ControllerOptions
		want    string
	}{
		"no program":     {ControllerOptions{Binary: filepath.Join(t.TempDir(), "nothing")}, "make build"},
		"a folder":       {ControllerOptions{Binary: t.TempDir()}, "is a folder"},
		"no StatefulSet": {ControllerOptions{Binary: self(t), StatefulSet: "other"}, "no StatefulSet other"},
		"no token":       {ControllerOptions{Binary: self(t)}, "no token is left"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := w.StartController(t.Context(), tc.options); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something with %q", err, tc.want)
			}
		})
	}
}

func TestAdapt(t *testing.T) {
	args := []string{"--a=1", "--flag", "--b=2"}
	got, err := adapt(args, map[string]string{"b": "3"})
	if err != nil || !slices.Equal(got, []string{"--a=1", "--flag", "--b=3"}) {
		t.Errorf("got %q, %v", got, err)
	}
	if args[2] != "--b=2" {
		t.Error("changed the chart's arguments")
	}
	for name, tc := range map[string]struct {
		args  []string
		value string
	}{
		"missing":         {args, "c"},
		"without a value": {args, "flag"},
		"twice":           {[]string{"--a=1", "--a=2"}, "a"},
		"one dash":        {[]string{"a=1"}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := adapt(tc.args, map[string]string{tc.value: "x"}); err == nil {
				t.Errorf("gives %q", got)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	limit := func(resource string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: resource}}
	}
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	got, err := environment(container{
		env:    []corev1.EnvVar{{Name: "A", Value: "1=2"}, {Name: "B"}, {Name: "GOMEMLIMIT", ValueFrom: limit("limits.memory")}},
		limits: limits,
	})
	if err != nil || !slices.Equal(got, []string{"A=1=2", "B=", "GOMEMLIMIT=1073741824"}) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, v := range []corev1.EnvVar{
		{Name: "A", ValueFrom: &corev1.EnvVarSource{}},
		{Name: "B", Value: "$(A)"},
		{Name: "C", ValueFrom: limit("limits.cpu")},
		{Name: "D", ValueFrom: limit("requests.memory")},
	} {
		if got, err := environment(container{env: []corev1.EnvVar{v}, limits: limits}); err == nil {
			t.Errorf("%s gives %q", v.Name, got)
		}
	}
}

func TestFreeAddresses(t *testing.T) {
	got, err := freeAddresses(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != 3 {
		t.Errorf("not three: %q", got)
	}
}

// TestTail holds that the end of a log is whole lines, and bounded.
func TestTail(t *testing.T) {
	end := &tail{}
	for n := range 1000 {
		fmt.Fprintf(end, "line %d\n", n)
	}
	got := end.String()
	first, _, _ := strings.Cut(got, "\n")
	if len(got) > tailSize || !strings.HasSuffix(got, "\nline 999") || !strings.HasPrefix(first, "line ") {
		t.Errorf("%d bytes from %q", len(got), first)
	}
	io.WriteString(end, strings.Repeat("x", 2*tailSize))
	if got := end.String(); !bytes.Equal([]byte(got), bytes.Repeat([]byte("x"), tailSize)) {
		t.Errorf("a line that is too long: %d bytes", len(got))
	}
}

// TestClientRereadsToken holds what the renewal relies on: the file that is renewed is the one that a client was given.
func TestClientRereadsToken(t *testing.T) {
	w := worldWithChart(t, "obedient", "first", "second")
	f, err := w.newTokenFile(t.Context(), "lanyard-controller", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sent string
	wrapped, err := rest.HTTPWrappersForConfig(config, roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = req.Header.Get("Authorization")
		return nil, errors.New("not sent")
	}))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1/", nil)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := poll(ctx, func(context.Context) (bool, error) { return false, nil }); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// TestRenewal holds that a token is replaced at half its life, that a failure is tried again soon, and that nothing goes on
// after the end.
func TestRenewal(t *testing.T) {
	w := worldWithChart(t, "obedient", "first", "second")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f, err := w.newTokenFile(t.Context(), "lanyard-controller", dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			wait  time.Duration
			token string
		}{{renewAfter - time.Second, "first"}, {2 * time.Second, "second"}, {tokenLife, "second"}} { // there is no third
			time.Sleep(step.wait)
			synctest.Wait()
			if got := read(t, filepath.Join(dir, "token")); got != step.token {
				t.Errorf("%s later the token is %q, want %q", step.wait, got, step.token)
			}
		}
		f.close() // returns once the renewal has ended, or the bubble would say so
	})
}
