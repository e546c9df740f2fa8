package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/cli/pages"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// command is a process of the command lanyard.
type command struct {
	out, err bytes.Buffer
	env      map[string]string

	in, home, mount, program string

	afterMessage func() // called after each write to err
}

// messages is a writer to a command's err. It calls afterMessage after each write.
type messages struct{ *command }

func (m messages) Write(p []byte) (int, error) {
	n, err := m.err.Write(p)
	if m.afterMessage != nil {
		m.afterMessage()
	}
	return n, err
}

func (c *command) run(ctx context.Context, args ...string) int {
	return Run(ctx, args, IO{
		IO: frame.IO{
			Kinds: kinds.All(), In: strings.NewReader(c.in), Out: &c.out, Err: messages{c}, Home: c.home, Mount: c.mount,
			Env: func(name string) string { return c.env[name] },
		},
		Program: c.program,
		Build:   Build{Version: "v0.1.0", Commit: "0123456789abcdef0123456789abcdef01234567", Go: "go1.26.0", Platform: "linux/amd64"},
	})
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
	for _, sub := range commands(newRoot(IO{IO: frame.IO{Kinds: kinds.All()}})) {
		// Package internal/cli/world tests the help of these commands.
		if _, local := localCommands()[sub.Name()]; local {
			continue
		}
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

// TestUsage asserts that a wrong command line ends with status 2, and that the error refers to
// --help.
func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown command":      {"down"},
		"unknown flag":         {"status", "--twice"},
		"unexpected argument":  {"status", "now"},
		"unknown format":       {"status", "-o", "xml"},
		"two scopes":           {"status", "-A", "-n", "x"},
		"no object":            {"reconcile"},
		"all and an object":    {"suspend", "--all", "bucket/app"},
		"no kind":              {"resume", "app"},
		"unknown kind":         {"reconcile", "pod/app"},
		"name of a path":       {"reconcile", "bucket/a/b"},
		"time before now":      {"reconcile", "bucket/a", "--timeout=-1s"},
		"format of nothing":    {"-o", "json"},
		"command of version":   {"--version", "status"},
		"no identity":          {"token"},
		"token of an object":   {"token", "bucket/app"},
		"format as a file":     {"token", "workloadidentity/app", "-o", "json"},
		"unknown token":        {"token", "workloadidentity/app", "--format", "xml"},
		"password for kubectl": {"token", "--creds=aws", "--registry=1.dkr.ecr.eu-west-1.amazonaws.com", "--format=exec-credential"},
		"two holders":          {"token", "workloadidentity/app", "--creds=SpiffeJWT"},
		"unknown credential":   {"token", "--creds=password"},
		"account of no creds":  {"token", "workloadidentity/app", "--sa-name=x"},
		"question of nothing":  {"credential-helper"},
		"refresh of nothing":   {"token", "workloadidentity/app", "--refresh"},
		"fraction of seconds":  {"token", "workloadidentity/app", "--duration", "1500ms"},
		"unknown about keys":   {"keys", "drop"},
		"no key":               {"keys", "revoke"},
		"wait before now":      {"keys", "rotate", "--timeout=-1s"},
		"no folder":            {"discovery", "export"},
		"no namespace":         {"tenant"},
		"not a namespace":      {"tenant", "Tenant_A"},
		"no artifact":          {"list", "artifact"},
		"two artifacts":        {"tag", "artifact", "oci://a.example/b:1", "oci://a.example/b:2", "--tag=x"},
		"no path":              {"push", "artifact", "oci://a.example/b:1"},
		"no new tag":           {"tag", "artifact", "oci://a.example/b:1"},
		"not an artifact":      {"pull", "artifact", "a.example/b:1", "--path=x"},
		"user information":     {"pull", "artifact", "oci://user:secret@a.example/b:1", "--path=x"},
		"token without TLS":    {"list", "artifact", "oci://a.example/b", "--insecure-registry", "--creds=SpiffeJWT"},
		"namespace of keys":    {"tenant", "lanyard-system"},
		"keys of identities":   {"tenant", "lanyard-identities"},
		"static keys":          {"tenant", "keys", "--identity-secret-namespace=keys"},
		"keys of a release":    {"tenant", "eu-identities", "--fullname=eu"},
		"no spoke":             {"hub", "grant", "-n", "eu-1-team-a"},
		"not a spoke":          {"hub", "grant", "eu:1", "-n", "eu-1-team-a"},
		"spoke with nothing":   {"hub", "grant", "eu-1"},
		"spoke and keys":       {"hub", "grant", "eu-1", "-n", "lanyard-system"},
		"spoke and spokes":     {"hub", "grant", "eu-1", "-n", "lanyard-spokes"},
		"spokes beside keys":   {"hub", "grant", "eu-1", "-n", "a", "--spoke-namespace", "lanyard-system"},
		"name of another":      {"hub", "grant", "eu-1", "-n", "a", "--user", "spoke:eu-2"},
		"names in two places":  {"hub", "grant", "eu-1", "-n", "a", "-n", "b", "--identity", "backup"},
		"not an identity":      {"hub", "grant", "eu-1", "-n", "a", "--identity", "*"},
		"nothing to explain":   {"explain"},
		"two to explain":       {"explain", "bucket/a", "bucket/b"},
		"binding to explain":   {"explain", "binding/a"},
		"path to explain":      {"explain", "awscluster/a/b"},
		"table of one object":  {"explain", "bucket/a", "-o", "table"},
		"no manifests":         {"convert"},
		"manifest as argument": {"convert", "app.yaml"},
		"write to stdin":       {"convert", "-f", "-", "--write"},
		"half an account":      {"tenant", "tenant-d", "--identity-service-account", "lender"},
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

func TestVersion(t *testing.T) {
	var all bytes.Buffer
	for _, format := range []string{frame.Text, frame.JSON, frame.YAML} {
		var c command
		if status := c.run(t.Context(), "version", "-o", format); status != 0 {
			t.Fatal(c.err.String())
		}
		fmt.Fprintf(&all, "$ lanyard version -o %s\n%s", format, c.out.String())
		var flag command
		if status := flag.run(t.Context(), "--version", "-o", format); status != 0 || flag.out.String() != c.out.String() {
			t.Errorf("--version -o %s: status %d, prints %s%s", format, status, flag.out.String(), flag.err.String())
		}
	}
	golden.Compare(t, "testdata/version.golden", all.Bytes())
}

// TestHelpTopics checks that help accepts the name of each command, and fails for any other topic.
func TestHelpTopics(t *testing.T) {
	for line, want := range map[string]struct {
		status int
		says   string
	}{
		"help":              {0, ""},
		"help status":       {0, ""},
		"help nosuch":       {frame.Failed, "lanyard: there is no help about \"nosuch\"; see lanyard --help\n"},
		"help status twice": {frame.Failed, "lanyard: there is no help about \"status twice\"; see lanyard --help\n"},
	} {
		var c command
		if status := c.run(t.Context(), strings.Fields(line)...); status != want.status || c.err.String() != want.says || (c.out.Len() > 0) != (status == 0) {
			t.Errorf("%s: status %d, says %q, prints %q", line, status, c.err.String(), c.out.String())
		}
	}
}

// TestUsageSays checks the error texts for the most frequent mistakes in command lines.
func TestUsageSays(t *testing.T) {
	for line, want := range map[string]string{
		"reconcile":      "lanyard: name an object, KIND/NAME, or write --all; see lanyard reconcile --help\n",
		"resume app":     "lanyard: \"app\" is not KIND/NAME, such as ocirepository/app; see lanyard resume --help\n",
		"suspend pod/a":  "lanyard: \"pod\" is not a kind: write ocirepository, bucket, imagerepository or binding; see lanyard suspend --help\n",
		"-o json":        "lanyard: -o is about --version, or follows a command; see lanyard --help\n",
		"status -A -n x": "lanyard: -A and -n exclude each other; see lanyard status --help\n",
		"stat":           "lanyard: unknown command \"stat\" for \"lanyard\"\n\nDid you mean this?\n\tstatus\n\ttag\n\nSee lanyard --help\n",
		"explain lwib/a": "lanyard: \"lwib\" is not a kind that can be explained: write ocirepository, bucket, imagerepository, kustomization or awscluster; see lanyard explain --help\n",
		"down":           "lanyard: unknown command \"down\" for \"lanyard\"; see lanyard --help\n",
	} {
		var c command
		if c.run(t.Context(), strings.Fields(line)...); c.err.String() != want {
			t.Errorf("lanyard %s says %q", line, c.err.String())
		}
	}
}

// api starts an API server with OCIRepositories, and no objects of other kinds.
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
		must.Succeed(t, err)
		list, err := yaml.YAMLToJSON(data)
		must.Succeed(t, err)
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
	must.Succeed(t, os.WriteFile(kubeconfig, []byte(config), 0o600))
	return kubeconfig
}

func TestStatus(t *testing.T) {
	kubeconfig := api(t)
	for name, args := range map[string][]string{
		"all":       {"-A"},
		"wide":      {"-A", "-o", "wide"},
		"json":      {"-A", "-o", "json"},
		"yaml":      {"-n", "tenant-b", "-o", "yaml"},
		"namespace": {}, // without -n, the kubeconfig sets the namespace
	} {
		t.Run(name, func(t *testing.T) {
			var c command
			if status := c.run(t.Context(), append([]string{"status", "--kubeconfig", kubeconfig}, args...)...); status != 0 || c.err.Len() > 0 {
				t.Fatalf("status %d: %s", status, c.err.String())
			}
			golden.Compare(t, "testdata/status-"+name+".golden", c.out.Bytes())
		})
	}
	t.Run("check", func(t *testing.T) {
		for name, tt := range map[string]struct {
			args   []string
			status int
			says   string
		}{
			"not all as they should be": {[]string{"-A"}, frame.Failed, "of 2 objects are as they should be"},
			"all as they should be":     {[]string{"-n", "tenant-b"}, 0, ""},
			"none":                      {[]string{"-n", "empty"}, frame.Failed, "no object to check"},
			"none, for a program":       {[]string{"-n", "empty", "-o", "json"}, frame.Failed, "no object to check"},
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
		golden.Compare(t, "testdata/status-namespace.golden", c.out.Bytes())
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
		if status := c.run(t.Context(), "status"); status != frame.Failed || !strings.Contains(c.err.String(), "--kubeconfig") {
			t.Errorf("status %d: %s", status, c.err.String())
		}
	})
	t.Run("cluster is down", func(t *testing.T) {
		down := filepath.Join(t.TempDir(), "kubeconfig")
		data, err := os.ReadFile(kubeconfig)
		must.Succeed(t, err)
		data = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAll(data, []byte("127.0.0.1:1"))
		must.Succeed(t, os.WriteFile(down, data, 0o600))
		var c command
		if status := c.run(t.Context(), "status", "--kubeconfig", down); status != frame.Failed || !strings.Contains(c.err.String(), "lanyard up") {
			t.Errorf("status %d: %s", status, c.err.String())
		}
	})
}

// TestPages asserts that docs/cli and docs/man have a page for each command, and no other page.
func TestPages(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	local := localCommands()
	known := map[string]bool{}
	pages.Test(t, docs, newRoot(IO{IO: frame.IO{Kinds: kinds.All()}}), func(c *cobra.Command) bool {
		_, elsewhere := local[c.Name()]
		known[strings.ReplaceAll(c.CommandPath(), " ", "_")] = true
		return !elsewhere // internal/cli/world tests the pages of lanyard-local's commands
	})
	files, err := filepath.Glob(filepath.Join(docs, "cli", "*.md"))
	must.Succeed(t, err)
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		of, _, _ := strings.Cut(strings.TrimPrefix(name, frame.Name+"_"), "_")
		if _, elsewhere := local[of]; !known[name] && !elsewhere {
			t.Errorf("%s is the page of no command: remove it", path)
		}
	}
}
