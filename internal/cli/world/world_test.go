package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/cli/pages"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// command is a process of the program lanyard-local.
type command struct{ out, err bytes.Buffer }

func (c *command) run(ctx context.Context, args ...string) int {
	return Run(ctx, args, IO{Out: &c.out, Err: &c.err, Program: "lanyard"})
}

func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// TestHelp compares all help texts with a golden file.
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
	golden.Compare(t, "testdata/help.golden", all.Bytes())
}

// TestOutputFlag asserts that every command with the flag --output can print JSON and YAML.
func TestOutputFlag(t *testing.T) {
	for _, path := range []string{"up", "cloud env", "cloud journal"} {
		sub, _, err := newRoot(IO{}).Find(strings.Fields(path))
		must.Succeed(t, err)
		output := sub.Flags().Lookup("output")
		if output == nil {
			t.Fatalf("%s has no flag --output", path)
		}
		for _, format := range []string{frame.JSON, frame.YAML} {
			if err := output.Value.Set(format); err != nil {
				t.Errorf("%s -o %s: %v", path, format, err)
			}
		}
	}
}

// TestCompletion compares the words that the shell offers for each flag with a golden file. Where
// that file has cobra's default directive, :0, the shell also offers the names of files.
func TestCompletion(t *testing.T) {
	lines := []string{"up --set issuer.t", "up --controlplane ", "up --controller ", "up --dir ", "up --examples ", "up --cloud ", "up --timeout ", "up --output "}
	lines = append(lines, "cloud --file ", "cloud --listen ", "cloud --dir ", "cloud env --output ", "cloud env --dir ")
	for _, flag := range []string{"verdict", "service", "operation", "subject", "role", "output", "dir"} {
		lines = append(lines, "cloud journal --"+flag+" ")
	}
	var all bytes.Buffer
	for _, line := range lines {
		var c command
		if status := c.run(t.Context(), append([]string{"__complete"}, strings.Split(line, " ")...)...); status != 0 {
			t.Errorf("%s: status %d: %s", line, status, c.err.String())
		}
		fmt.Fprintf(&all, "$ lanyard %s<TAB>\n%s", line, c.out.String())
	}
	for _, sub := range commands(newRoot(IO{})) {
		sub.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if line := "$ " + sub.CommandPath() + " --" + f.Name + " "; f.NoOptDefVal == "" && f.Name != "help" && !strings.Contains(all.String(), line) {
				t.Errorf("no line of this test begins with %q", line)
			}
		})
	}
	golden.Compare(t, "testdata/completion.golden", all.Bytes())
}

// TestUsage asserts that a wrong command line ends with status 2, and that the error refers to
// --help.
func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown command":     {"down"},
		"unknown flag":        {"up", "--twice"},
		"unexpected argument": {"up", "now"},
		"no value":            {"up", "--set", "log.level"},
		"unknown value":       {"up", "--set", "log.colour=red"},
		"unknown verdict":     {"cloud", "journal", "--verdict", "maybe"},
		"unknown service":     {"cloud", "journal", "--service", "ec3"},
		"watch of JSON":       {"cloud", "journal", "--watch", "-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			var c command
			if status := c.run(t.Context(), args...); status != frame.Misused {
				t.Errorf("status %d", status)
			}
			if !strings.Contains(c.err.String(), "--help") || c.out.Len() > 0 {
				t.Errorf("says %q and prints %q", c.err.String(), c.out.String())
			}
		})
	}
}

// TestUpRefuses asserts that up reports errors before it starts anything or removes a former run's
// files. It reports all errors at once, each with its flag or file and the next step.
func TestUpRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	mine := t.TempDir()
	files := map[string]string{
		"manifests.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {nam: x}\n",
		"cloud.json":     "{\"aws\":\n{\"acounts\": []}}\n",
	}
	for name, text := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(mine, name), []byte(text), 0o600))
	}
	var c command
	status := c.run(t.Context(), "up", "--dir", dir, "--controlplane", "nowhere/controlplane", "--controller", t.TempDir(),
		"--examples", mine, "--cloud", filepath.Join(mine, "cloud.json"))
	if status != frame.Failed {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		"nowhere/controlplane", "make build", "--controlplane", "--controller", "is a folder",
		filepath.Join(mine, "manifests.yaml") + ":3: ", filepath.Join(mine, "cloud.json") + `:2: unknown field "aws.acounts"`,
	} {
		if !strings.Contains(c.err.String(), want) {
			t.Errorf("does not say %q: %s", want, c.err.String())
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("made the folder")
	}
}

// TestFindPrograms asserts that the command "lanyard up" finds its programs in a given folder, from
// every working folder. If this folder lacks a program, the command finds the program in PATH.
func TestFindPrograms(t *testing.T) {
	beside, inPath, elsewhere := t.TempDir(), t.TempDir(), t.TempDir()
	program := func(path string) string {
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
		return path
	}
	plane := program(filepath.Join(beside, "bin", "controlplane"))
	program(filepath.Join(inPath, "controlplane"))
	controller := program(filepath.Join(inPath, "lanyard-controller"))
	t.Setenv("PATH", inPath)
	bin := filepath.Dir(plane)

	t.Chdir(elsewhere)
	o := upOptions{}
	if o.findPrograms(bin); o.controlPlane != plane || o.controller != controller {
		t.Errorf("from elsewhere: %s and %s", o.controlPlane, o.controller)
	}
	o = upOptions{controlPlane: "mine"}
	if o.findPrograms(bin); o.controlPlane != "mine" {
		t.Errorf("a flag's program became %s", o.controlPlane)
	}
	t.Chdir(beside)
	o = upOptions{}
	if o.findPrograms(bin); o.controlPlane != filepath.Join("bin", "controlplane") {
		t.Errorf("from its repository: %s", o.controlPlane)
	}
	t.Setenv("PATH", elsewhere)
	o = upOptions{}
	o.findPrograms(bin)
	err := o.checkPrograms([]local.Workload{{Name: "lanyard-controller", Program: controllerProgram}})
	if missing, ok := errors.AsType[*local.MissingBinaryError](err); !ok || missing.Path != filepath.Join("bin", "lanyard-controller") {
		t.Errorf("a missing program: %v", err)
	}
	// The error about a program without a flag of its own must not advise --controller.
	err = o.checkPrograms([]local.Workload{{Name: "lanyard-token-server", Program: "lanyard-token-server"}})
	if err == nil || strings.Contains(err.Error(), "--controller") {
		t.Errorf("a missing program without a flag: %v", err)
	}
}

// TestCloud checks the variables and the journal of a running cloud. A second cloud in the same
// folder must be refused, and the cloud must end cleanly.
func TestCloud(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	var cloud command
	go func() { ended <- cloud.run(ctx, "cloud", "--dir", dir) }()
	for { // wait until the cloud writes the file that says it is up
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
	must.Succeed(t, json.Unmarshal(env.out.Bytes(), &variables))
	if _, err := os.Stat(variables["SSL_CERT_FILE"]); err != nil {
		t.Error(err)
	}
	// Call a host that is not part of the cloud, as a program with these variables could do. The
	// journal must then list a refused call.
	admin := &cloudtest.Admin{URL: variables["HTTPS_PROXY"]}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", nil)
	must.Succeed(t, err)
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
	if status := again.run(t.Context(), "cloud", "--dir", dir); status != frame.Failed || !strings.Contains(again.err.String(), "in use") {
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
	if status := gone.run(t.Context(), "cloud", "env", "--dir", dir); status != frame.Failed || !strings.Contains(gone.err.String(), "lanyard up") {
		t.Errorf("after the end: status %d: %s", status, gone.err.String())
	}
}

func TestCloudFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cloud.yaml")
	must.Succeed(t, os.WriteFile(file, examples.Cloud(), 0o600))
	if _, err := readCloudConfig(file); err != nil {
		t.Error(err)
	}
	must.Succeed(t, os.WriteFile(file, []byte("aws: {acounts: []}\n"), 0o600))
	if _, err := readCloudConfig(file); err == nil || !strings.Contains(err.Error(), "acounts") || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
	if _, err := readCloudConfig(file + ".missing"); err == nil || !strings.Contains(err.Error(), "examples/cloud") {
		t.Errorf("got %v", err)
	}
}

func TestEnvFormats(t *testing.T) {
	var all bytes.Buffer
	for _, format := range []string{frame.Shell, frame.Dotenv, frame.JSON, frame.YAML} {
		fmt.Fprintf(&all, "$ lanyard cloud env -o %s\n", format)
		env := cloudtest.Env("http://127.0.0.1:3128", "/home/it's me/.demo/cloud-ca.pem")
		must.Succeed(t, writeEnv(&all, frame.OutputFlag(&cobra.Command{}, format), env))
	}
	golden.Compare(t, "testdata/env.golden", all.Bytes())
}

// TestShellQuote asserts that a shell reads a quoted value unchanged, and runs no part of it.
func TestShellQuote(t *testing.T) {
	values := []string{"plain", "", "it's", "$(touch x)", "`touch x`", "a b", "\"", "\\", "a\nb", "-n", "*", "~", "!x", "ä"}
	script := "set --"
	for _, v := range values {
		script += " " + shellQuote(v) + " " + shellWord(v)
	}
	script += "; printf '%s\\000' \"$@\""
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
	must.Succeed(t, err)
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
	must.Succeed(t, writeCalls(&out, calls, true))
	golden.Compare(t, "testdata/calls.golden", out.Bytes())
}

// TestCallsWidth asserts that the subject of a token that nobody verified does not push the columns
// of other calls off the screen.
func TestCallsWidth(t *testing.T) {
	var out bytes.Buffer
	calls := []journal.Call{{Service: "sts", Subject: strings.Repeat("x", 2048), Status: 400, Code: "InvalidIdentityToken"}, {Service: "sts", Status: 200}}
	must.Succeed(t, writeCalls(&out, calls, true))
	for line := range strings.Lines(out.String()) {
		if len(line) > 300 {
			t.Errorf("a line has %d bytes", len(line))
		}
	}
}

// TestProgress asserts that on a terminal the counter is one line, and that every step begins a new
// line.
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
			golden.Compare(t, "testdata/progress-"+name+".golden", out.Bytes())
		})
	}
}

// TestJournalCompletion asserts that the shell offers the values of the journal's filters.
func TestJournalCompletion(t *testing.T) {
	for flag, want := range map[string]string{"--verdict": "granted\nrefused\n:4\n", "--service": "sts\n", "--operation": ":4\n"} {
		var c command
		if status := c.run(t.Context(), "__complete", "cloud", "journal", flag, ""); status != 0 || !strings.Contains(c.out.String(), want) {
			t.Errorf("%s: status %d, offers %q", flag, status, c.out.String())
		}
	}
}

// TestPages asserts that docs/cli and docs/man have the page of each command.
func TestPages(t *testing.T) {
	pages.Test(t, filepath.Join("..", "..", "..", "docs"), newRoot(IO{}), func(c *cobra.Command) bool { return c.HasParent() })
}
