package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/local"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s; look at it and run with -update:\n%s", path, got)
	}
}

// command is a process of the command lanyard.
type command struct {
	out, err bytes.Buffer
	env      map[string]string
}

func (c *command) run(ctx context.Context, args ...string) int {
	return Run(ctx, args, IO{
		Out: &c.out, Err: &c.err, Program: "lanyard",
		Env:   func(name string) string { return c.env[name] },
		Build: Build{Version: "v0.1.0", Commit: "0123456789abcdef0123456789abcdef01234567", Go: "go1.26.0", Platform: "linux/amd64"},
	})
}

func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// TestHelp holds all help texts.
func TestHelp(t *testing.T) {
	var all bytes.Buffer
	for _, sub := range commands(newRoot(IO{})) {
		path := strings.Fields(sub.CommandPath())[1:]
		var c command
		if status := c.run(t.Context(), append(path, "--help")...); status != 0 || c.err.Len() > 0 {
			t.Errorf("%s --help ends with %d: %s", sub.CommandPath(), status, c.err.String())
		}
		fmt.Fprintf(&all, "$ %s --help\n%s\n", sub.CommandPath(), c.out.String())
		if sub.Example == "" || sub.Short == "" {
			t.Errorf("%s has no example, or does not say what it does", sub.CommandPath())
		}
	}
	golden(t, "help.golden", all.Bytes())
}

// TestOutputFlag holds that every command with a list has it for programs too.
func TestOutputFlag(t *testing.T) {
	for _, path := range []string{"up", "status", "cloud env", "cloud journal", "version"} {
		sub, _, err := newRoot(IO{}).Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		output := sub.Flags().Lookup("output")
		if output == nil {
			t.Fatalf("%s has no flag --output", path)
		}
		for _, format := range []string{formatJSON, formatYAML} {
			if err := output.Value.Set(format); err != nil {
				t.Errorf("%s -o %s: %v", path, format, err)
			}
		}
	}
}

// TestUsage holds that a command line without sense is refused with status 2 and the place where to read on.
func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown command":     {"down"},
		"unknown flag":        {"up", "--twice"},
		"unexpected argument": {"up", "now"},
		"unknown format":      {"status", "-o", "xml"},
		"unknown verdict":     {"cloud", "journal", "--verdict", "maybe"},
		"unknown service":     {"cloud", "journal", "--service", "ec2"},
		"watch of JSON":       {"cloud", "journal", "--watch", "-o", "json"},
		"two scopes":          {"status", "-A", "-n", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			var c command
			if status := c.run(t.Context(), args...); status != exitUsage {
				t.Errorf("status %d", status)
			}
			if !strings.Contains(c.err.String(), "--help") || c.out.Len() > 0 {
				t.Errorf("says %q and prints %q", c.err.String(), c.out.String())
			}
		})
	}
}

func TestVersion(t *testing.T) {
	var all bytes.Buffer
	for _, format := range []string{formatText, formatJSON, formatYAML} {
		var c command
		if status := c.run(t.Context(), "version", "-o", format); status != 0 {
			t.Fatal(c.err.String())
		}
		fmt.Fprintf(&all, "$ lanyard version -o %s\n%s", format, c.out.String())
	}
	golden(t, "version.golden", all.Bytes())
}

// TestUpRefuses holds that up says what to do before it starts anything or removes a former run's files.
func TestUpRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	var c command
	if status := c.run(t.Context(), "up", "--dir", dir, "--controlplane", "nowhere/controlplane", "--controller", t.TempDir()); status != exitFailed {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"nowhere/controlplane", "make build", "--controlplane", "--controller", "is a folder"} {
		if !strings.Contains(c.err.String(), want) {
			t.Errorf("does not say %q: %s", want, c.err.String())
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("made the folder")
	}
}

// TestUsageSays holds what is said of the command lines that people get wrong most.
func TestUsageSays(t *testing.T) {
	for line, want := range map[string]string{
		"status -A -n x": "lanyard: -A and -n exclude each other; see lanyard status --help\n",
		"stat":           "lanyard: unknown command \"stat\" for \"lanyard\"\n\nDid you mean this?\n\tstatus\n\nSee lanyard --help\n",
		"down":           "lanyard: unknown command \"down\" for \"lanyard\"; see lanyard --help\n",
	} {
		var c command
		if c.run(t.Context(), strings.Fields(line)...); c.err.String() != want {
			t.Errorf("lanyard %s says %q", line, c.err.String())
		}
	}
}

// api is an API server with OCIRepositories, and nothing of the other kinds.
func api(t *testing.T) (kubeconfig string) {
	t.Helper()
	answers := map[string]string{
		"/api":                               `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":                              `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"toolkit.lanyard.dev","versions":[{"groupVersion":"toolkit.lanyard.dev/v1alpha1","version":"v1alpha1"}],"preferredVersion":{"groupVersion":"toolkit.lanyard.dev/v1alpha1","version":"v1alpha1"}}]}`,
		"/apis/toolkit.lanyard.dev/v1alpha1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"toolkit.lanyard.dev/v1alpha1","resources":[{"name":"ocirepositories","singularName":"ocirepository","namespaced":true,"kind":"OCIRepository","verbs":["list"]},{"name":"buckets","singularName":"bucket","namespaced":true,"kind":"Bucket","verbs":["list"]},{"name":"imagerepositories","singularName":"imagerepository","namespaced":true,"kind":"ImageRepository","verbs":["list"]}]}`,
		"/apis/toolkit.lanyard.dev/v1alpha1/namespaces/empty/ocirepositories": `{"kind":"OCIRepositoryList","apiVersion":"toolkit.lanyard.dev/v1alpha1","items":[]}`,
	}
	for path, file := range map[string]string{"": "all.yaml", "/namespaces/tenant-b": "tenant-b.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		list, err := yaml.YAMLToJSON(data)
		if err != nil {
			t.Fatal(err)
		}
		answers["/apis/toolkit.lanyard.dev/v1alpha1"+path+"/ocirepositories"] = string(list)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[strings.TrimSuffix(r.URL.Path, "/")]
		for plural, kind := range map[string]string{"buckets": "BucketList", "imagerepositories": "ImageRepositoryList"} {
			if strings.HasSuffix(r.URL.Path, "/"+plural) {
				answer, ok = `{"kind":"`+kind+`","apiVersion":"toolkit.lanyard.dev/v1alpha1","items":[]}`, true
			}
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "c", "user": {}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "tenant-b"}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func TestStatus(t *testing.T) {
	kubeconfig := api(t)
	for name, args := range map[string][]string{
		"all":       {"-A"},
		"wide":      {"-A", "-o", "wide"},
		"json":      {"-A", "-o", "json"},
		"yaml":      {"-n", "tenant-b", "-o", "yaml"},
		"namespace": {}, // the kubeconfig's
	} {
		t.Run(name, func(t *testing.T) {
			var c command
			if status := c.run(t.Context(), append([]string{"status", "--kubeconfig", kubeconfig}, args...)...); status != 0 || c.err.Len() > 0 {
				t.Fatalf("status %d: %s", status, c.err.String())
			}
			golden(t, "status-"+name+".golden", c.out.Bytes())
		})
	}
	t.Run("check", func(t *testing.T) {
		for name, tt := range map[string]struct {
			args   []string
			status int
			says   string
		}{
			"not all as they should be": {[]string{"-A"}, exitFailed, "of 2 objects are as they should be"},
			"all as they should be":     {[]string{"-n", "tenant-b"}, 0, ""},
			"none":                      {[]string{"-n", "empty"}, exitFailed, "no object to check"},
			"none, for a program":       {[]string{"-n", "empty", "-o", "json"}, exitFailed, "no object to check"},
		} {
			var c, plain command
			status := c.run(t.Context(), append([]string{"status", "--check", "--kubeconfig", kubeconfig}, tt.args...)...)
			if status != tt.status || !strings.Contains(c.err.String(), tt.says) {
				t.Errorf("%s: status %d: %s", name, status, c.err.String())
			}
			if plain.run(t.Context(), append([]string{"status", "--kubeconfig", kubeconfig}, tt.args...)...); plain.out.String() != c.out.String() {
				t.Errorf("%s: prints something else than without --check:\n%s", name, c.out.String())
			}
		}
	})
	t.Run("KUBECONFIG", func(t *testing.T) {
		c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		if status := c.run(t.Context(), "status"); status != 0 {
			t.Fatal(c.err.String())
		}
		golden(t, "status-namespace.golden", c.out.Bytes())
	})
	t.Run("nothing", func(t *testing.T) {
		c := command{env: map[string]string{"KUBECONFIG": kubeconfig}}
		if status := c.run(t.Context(), "status", "-n", "empty"); status != 0 || c.out.Len() > 0 ||
			c.err.String() != "There is no OCIRepository, Bucket or ImageRepository in namespace empty; -A shows all namespaces.\n" {
			t.Errorf("status %d, prints %q, says %q", status, c.out.String(), c.err.String())
		}
		if status := c.run(t.Context(), "status", "-n", "empty", "-o", "json"); status != 0 || strings.TrimSpace(c.out.String()) != "[]" {
			t.Errorf("status %d, prints %q", status, c.out.String())
		}
	})
	t.Run("no kubeconfig", func(t *testing.T) {
		var c command
		if status := c.run(t.Context(), "status"); status != exitFailed || !strings.Contains(c.err.String(), "--kubeconfig") {
			t.Errorf("status %d: %s", status, c.err.String())
		}
	})
	t.Run("cluster is down", func(t *testing.T) {
		down := filepath.Join(t.TempDir(), "kubeconfig")
		data, err := os.ReadFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		data = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAll(data, []byte("127.0.0.1:1"))
		if err := os.WriteFile(down, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var c command
		if status := c.run(t.Context(), "status", "--kubeconfig", down); status != exitFailed || !strings.Contains(c.err.String(), "lanyard up") {
			t.Errorf("status %d: %s", status, c.err.String())
		}
	})
}

// TestCloud runs a cloud as a user does, and looks at it from outside.
func TestCloud(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	var cloud command
	go func() { ended <- cloud.run(ctx, "cloud", "--dir", dir) }()
	for { // it says when it is up in a file
		if _, err := local.ReadCloud(t.Context(), dir); err == nil {
			break
		}
		select {
		case status := <-ended:
			t.Fatalf("ended with %d: %s", status, cloud.err.String())
		case <-time.After(time.Millisecond):
		}
	}

	var env command
	if status := env.run(t.Context(), "cloud", "env", "--dir", dir, "-o", "json"); status != 0 {
		t.Fatal(env.err.String())
	}
	var variables map[string]string
	if err := json.Unmarshal(env.out.Bytes(), &variables); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(variables["SSL_CERT_FILE"]); err != nil {
		t.Error(err)
	}
	// What a program in the cloud would do: a call to a host that is not part of it.
	admin := &cloudtest.Admin{URL: variables["HTTPS_PROXY"]}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	proxied := &http.Client{Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(admin.URL) }}}
	if _, err := proxied.Do(req); err != nil {
		t.Fatal(err)
	}
	var list command
	if status := list.run(t.Context(), "cloud", "journal", "--dir", dir, "--verdict", "refused"); status != 0 {
		t.Fatal(list.err.String())
	}
	if !strings.Contains(list.out.String(), "example.com:PLAIN") || !strings.Contains(list.out.String(), "PlainHTTP") {
		t.Errorf("the journal has not:\n%s", list.out.String())
	}
	var again command
	if status := again.run(t.Context(), "cloud", "--dir", dir); status != exitFailed || !strings.Contains(again.err.String(), "in use") {
		t.Errorf("a second cloud: status %d: %s", status, again.err.String())
	}

	stop()
	if status := <-ended; status != 0 {
		t.Errorf("ended with %d: %s", status, cloud.err.String())
	}
	for _, want := range []string{"proxy    " + admin.URL, "cloud env --dir " + dir, "Ctrl-C"} {
		if !strings.Contains(cloud.out.String(), want) {
			t.Errorf("does not say %q:\n%s", want, cloud.out.String())
		}
	}
	var gone command
	if status := gone.run(t.Context(), "cloud", "env", "--dir", dir); status != exitFailed || !strings.Contains(gone.err.String(), "lanyard up") {
		t.Errorf("after the end: status %d: %s", status, gone.err.String())
	}
}

func TestCloudFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cloud.yaml")
	if err := os.WriteFile(file, examples.Cloud(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readCloudConfig(file); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("aws: {acounts: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readCloudConfig(file); err == nil || !strings.Contains(err.Error(), "acounts") || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
	if _, err := readCloudConfig(file + ".missing"); err == nil || !strings.Contains(err.Error(), "examples/cloud") {
		t.Errorf("got %v", err)
	}
}

func TestEnvFormats(t *testing.T) {
	var all bytes.Buffer
	for _, format := range []string{formatShell, formatDotenv, formatJSON, formatYAML} {
		fmt.Fprintf(&all, "$ lanyard cloud env -o %s\n", format)
		if err := writeEnv(&all, format, cloudtest.Env("http://127.0.0.1:3128", "/home/it's me/.demo/cloud-ca.pem")); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "env.golden", all.Bytes())
}

// TestShellQuote holds that a shell reads back what was quoted, and runs none of it.
func TestShellQuote(t *testing.T) {
	values := []string{"plain", "", "it's", "$(touch x)", "`touch x`", "a b", "\"", "\\", "a\nb", "-n", "*", "~", "!x", "ä"}
	script := "set --"
	for _, v := range values {
		script += " " + shellQuote(v) + " " + shellWord(v)
	}
	script += "; printf '%s\\000' \"$@\""
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for i, v := range values {
		if got[2*i] != v || got[2*i+1] != v {
			t.Errorf("%q is read as %q and %q", v, got[2*i], got[2*i+1])
		}
	}
}

func TestCalls(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	calls := []journal.Call{
		{
			Time: at, Service: "sts", Operation: "AssumeRoleWithWebIdentity", Host: "sts.eu-west-1.amazonaws.com", Status: 200,
			Subject: "system:serviceaccount:tenant-a:tenant-a-ecr-sa", Role: "arn:aws:iam::123456789123:role/tenant-a-ecr",
		},
		{
			Time: at, Service: "sts", Operation: "AssumeRoleWithWebIdentity", Status: 403, Code: "AccessDenied",
			Subject: "system:serviceaccount:tenant-b:x", Reason: "trust policy: statement 0: condition StringEquals",
		},
		{
			Time: at, Service: "registry", Operation: "ecr:BatchGetImage", Status: 200, Principal: "arn:aws:sts::123456789123:assumed-role/tenant-a-ecr/x",
			Resource: "arn:aws:ecr:eu-west-1:123456789123:repository/tenant-a/app",
		},
		{Time: at, Service: journal.ServiceHandler, Host: "oidc.eks.eu-west-1.amazonaws.com", Operation: "GET", Status: 200, Resource: "/id/keys"},
		{Time: at, Service: journal.ServiceProxy, Host: "example.com", Operation: "CONNECT", Status: 403, Code: "UnknownHost", Reason: "hostile\x1b[2J\n"},
		{Time: at, Service: "sts", Status: 400, Code: "InvalidAction"},
	}
	var out bytes.Buffer
	if err := writeCalls(&out, calls, true); err != nil {
		t.Fatal(err)
	}
	golden(t, "calls.golden", out.Bytes())
}

// TestCallsWidth holds that the subject of a token that nobody verified does not push the columns of other calls off the screen.
func TestCallsWidth(t *testing.T) {
	var out bytes.Buffer
	calls := []journal.Call{{Service: "sts", Subject: strings.Repeat("x", 2048), Status: 400, Code: "InvalidIdentityToken"}, {Service: "sts", Status: 200}}
	if err := writeCalls(&out, calls, true); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 300 {
			t.Errorf("a line has %d bytes", len(line))
		}
	}
}

// TestProgress holds that a counter is one line on a terminal, and that every other line begins at the line's begin.
func TestProgress(t *testing.T) {
	for name, terminal := range map[string]bool{"terminal": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			synctest.Test(t, func(*testing.T) {
				p := &progress{w: &out, terminal: terminal, begin: time.Now()}
				p.step("cloud is up")
				time.Sleep(1500 * time.Millisecond)
				p.count(0, 2)
				p.count(2, 2)
				time.Sleep(time.Minute)
				p.step("done")
			})
			golden(t, "progress-"+name+".golden", out.Bytes())
		})
	}
}
