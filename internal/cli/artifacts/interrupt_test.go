package artifacts

import (
	"context"
	"crypto/rand"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// counted counts the requests to a registry. Instead of answering one of them, it calls a function.
type counted struct {
	registry http.Handler

	mu       sync.Mutex
	requests int
	at       int // number of the request that is not answered; 0 for none
	call     func()
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests++
	call := c.call
	if c.requests != c.at {
		call = nil
	}
	c.mu.Unlock()
	if call != nil {
		call()
		panic(http.ErrAbortHandler) // send no response, because the client was interrupted
	}
	c.registry.ServeHTTP(w, r)
}

// begin sets the count of requests to 0. The request with the given number, counted from 1, is not
// answered; instead, the given function is called.
func (c *counted) begin(at int, call func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests, c.at, c.call = 0, at, call
}

// leftovers returns what a command has left in a folder.
func leftovers(t *testing.T, folder string) (left []string) {
	t.Helper()
	for _, pattern := range []string{"lanyard-*", ".lanyard-*"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		must.Succeed(t, err)
		left = append(left, found...)
	}
	return left
}

// TestInterruptAtEachRequest interrupts each command at each of its requests. After an interrupt:
//   - push and tag must leave no tag
//   - pull must leave the folder as it was
//   - no command may leave a temporary file
//
// At the end the command runs without an interrupt, and must succeed.
func TestInterruptAtEachRequest(t *testing.T) {
	registry := &counted{registry: distribution(t)}
	host := serve(t, registry)
	large := make([]byte, 2<<20)
	_, _ = rand.Read(large)
	source := folder(t, map[string]string{"app.yaml": "kind: App", "large.bin": string(large)})
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	mustRun(t, "push", "artifact", "oci://"+host+"/known:1.0.0", "--path", source)
	target := folder(t, map[string]string{"before": "1"})
	before, fetched := tree(t, target), tree(t, source)

	for name, args := range map[string][]string{
		"push": {"push", "artifact", "oci://" + host + "/new:1.0.0", "--path", source},
		"pull": {"pull", "artifact", "oci://" + host + "/known:1.0.0", "--path", target, "--replace"},
		"diff": {"diff", "artifact", "oci://" + host + "/known:1.0.0", "--path", source},
		"list": {"list", "artifact", "oci://" + host + "/known"},
		"tag":  {"tag", "artifact", "oci://" + host + "/known:1.0.0", "--tag=new"},
	} {
		t.Run(name, func(t *testing.T) {
			uploads := t.TempDir()
			for at := 1; ; at++ {
				ctx, interrupt := context.WithCancel(t.Context())
				registry.begin(at, interrupt)
				p := process{uploads: uploads}
				status := p.run(ctx, args...)
				interrupt()
				if left := leftovers(t, temporary); len(left) > 0 {
					t.Errorf("at request %d: files stay: %v", at, left)
				}
				if status == 0 {
					if at < 3 {
						t.Errorf("only %d requests", at-1)
					}
					break
				}
				if status != frame.Interrupted {
					t.Fatalf("at request %d: status %d: %s", at, status, p.err.String())
				}
				registry.begin(0, nil)
				if got := tree(t, target); name == "pull" && got != before {
					t.Errorf("at request %d: the folder has\n%s", at, got)
				}
				if left := leftovers(t, filepath.Dir(target)); len(left) > 0 {
					t.Errorf("at request %d: beside the folder: %v", at, left)
				}
				tag := map[string]string{"push": "/new:1.0.0", "tag": "/known:new"}[name]
				if p := (process{}); tag != "" && p.run(t.Context(), "pull", "artifact", "oci://"+host+tag, "--path", filepath.Join(t.TempDir(), "x")) == 0 {
					t.Errorf("at request %d: %s is there", at, tag)
				}
			}
			if got := tree(t, target); name == "pull" && got != fetched {
				t.Error("the folder has something else than the artifact")
			}
		})
	}
}

// sizeLimit is the environment variable for the child process of TestNoSpace. Its value is the
// command line that the child runs with a limit on the size of files.
const sizeLimit = "LANYARD_TEST_PULL"

// TestNoSpace checks that a pull to a full disk leaves the folder as it was. The child process may
// write files of at most 1 MiB: a longer write fails, as on a full disk.
func TestNoSpace(t *testing.T) {
	if line := os.Getenv(sizeLimit); line != "" {
		limit := syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}
		must.Succeed(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
		var p process
		status := p.run(t.Context(), strings.Fields(line)...)
		t.Logf("status %d: %s", status, p.err.String())
		return
	}
	host := serve(t, distribution(t))
	source := folder(t, map[string]string{"a.yaml": "1", "large.bin": strings.Repeat("x", 2<<20), "z.yaml": "2"})
	mustRun(t, "push", "artifact", "oci://"+host+"/app:1.0.0", "--path", source)
	for name, files := range map[string]map[string]string{"replaced": {"before": "1"}, "empty": {}} {
		target := folder(t, files)
		before := tree(t, target)
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoSpace$", "-test.v")
		child.Env = append(os.Environ(), sizeLimit+"=pull artifact oci://"+host+"/app:1.0.0 --replace --path "+target)
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "status 1: ") || !strings.Contains(string(out), target+" is as it was") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if after := tree(t, target); after != before {
			t.Errorf("%s: the folder has\n%s", name, after)
		}
		if beside := leftovers(t, filepath.Dir(target)); len(beside) > 0 {
			t.Errorf("%s: beside the folder: %v", name, beside)
		}
	}
}

// TestFullOutput checks that a command fails if its result cannot be written, in every format.
// /dev/full is a device on which no space is left.
func TestFullOutput(t *testing.T) {
	app := "oci://" + serve(t, distribution(t)) + "/app"
	source := folder(t, map[string]string{"app.yaml": "1\n"})
	mustRun(t, "push", "artifact", app+":1.0.0", "--path", source)
	other := folder(t, map[string]string{"app.yaml": "2\n"})
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must.Succeed(t, err)
	defer full.Close()
	for _, format := range []string{"", "json", "yaml"} {
		for _, args := range [][]string{
			{"push", "artifact", app + ":1.0.0", "--path", source},
			{"pull", "artifact", app + ":1.0.0", "--path", filepath.Join(t.TempDir(), "x")},
			{"list", "artifact", app},
			{"tag", "artifact", app + ":1.0.0", "--tag=new"},
			{"diff", "artifact", app + ":1.0.0", "--path", other},
		} {
			want := map[bool]int{false: frame.Failed, true: frame.Undecided}[args[0] == "diff"]
			if format != "" {
				args = append(args, "-o", format)
			}
			p := process{sink: full}
			if status := p.run(t.Context(), args...); status != want || !strings.Contains(p.err.String(), "no space left") {
				t.Errorf("%v: status %d: %s", args, status, p.err.String())
			}
		}
	}
	said := explainDisk(&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, "./target").Error()
	if want := "there is not enough space for the artifact: no space left on device; ./target is as it was"; said != want {
		t.Errorf("says %q", said)
	}
}

// TestTargets checks where a pull may write, and what happens to the content that was there.
func TestTargets(t *testing.T) {
	host := serve(t, distribution(t))
	app := "oci://" + host + "/app:1.0.0"
	mustRun(t, "push", "artifact", app, "--path", folder(t, map[string]string{"app.yaml": "new"}))
	const pulled = `app.yaml false "new"`
	for name, tt := range map[string]struct {
		prepare func(root string) error
		path    string
		replace bool
		says    string // part of the refusal's text; empty for success
		want    string // the expected files below the root folder
	}{
		"absent":   {nil, "x", false, "", "x/\nx/" + pulled},
		"parents":  {nil, "a/b", false, "", "a/\na/b/\na/b/" + pulled},
		"empty":    {func(root string) error { return os.Mkdir(filepath.Join(root, "x"), 0o700) }, "x", false, "", "x/\nx/" + pulled},
		"content":  {func(root string) error { return os.WriteFile(filepath.Join(root, "before"), nil, 0o600) }, ".", false, "--replace", `before false ""`},
		"replaced": {func(root string) error { return os.WriteFile(filepath.Join(root, "before"), nil, 0o600) }, ".", true, "", pulled},
		"file":     {func(root string) error { return os.WriteFile(filepath.Join(root, "x"), nil, 0o600) }, "x", true, "not a directory", `x false ""`},
		"link": {func(root string) error {
			if err := os.Mkdir(filepath.Join(root, "real"), 0o700); err != nil {
				return err
			}
			return os.Symlink("real", filepath.Join(root, "x"))
		}, "x/.", false, "", "real/\nreal/" + pulled},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			must.Succeed(t, os.Mkdir(root, 0o750))
			if tt.prepare != nil {
				must.Succeed(t, tt.prepare(root))
			}
			args := []string{"pull", "artifact", app, "--path", root + "/" + tt.path}
			if tt.replace {
				args = append(args, "--replace")
			}
			var p process
			status := p.run(t.Context(), args...)
			if (status == 0) != (tt.says == "") || !strings.Contains(p.err.String(), tt.says) {
				t.Errorf("status %d: %s", status, p.err.String())
			}
			if name == "link" {
				must.Succeed(t, os.Remove(filepath.Join(root, "x")))
			}
			if got := tree(t, root); got != tt.want {
				t.Errorf("the folder has\n%s\nwant\n%s", got, tt.want)
			}
			if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o750 {
				t.Errorf("permissions: %v, %v", info, err)
			}
		})
	}
}

// TestPathOfAStranger checks that no command follows a link out of a checkout. A user who wants the
// link's target must write the target's own path.
func TestPathOfAStranger(t *testing.T) {
	app := "oci://" + serve(t, distribution(t)) + "/app:1.0.0"
	mustRun(t, "push", "artifact", app, "--path", folder(t, map[string]string{"app.yaml": "new"}))
	home := folder(t, map[string]string{"key": "the runner's"})
	t.Chdir(folder(t, map[string]string{"real/app.yaml": "new"}))
	for link, to := range map[string]string{"deploy": home, "up": "..", "file": filepath.Join(home, "key"), "inside": "real"} {
		must.Succeed(t, os.Symlink(to, link))
	}
	for _, args := range [][]string{
		{"push", "artifact", app, "--path=deploy"},
		{"push", "artifact", app, "--path=./deploy/."},
		{"push", "artifact", app, "--path=file"},
		{"diff", "artifact", app, "--path=deploy"},
		{"pull", "artifact", app, "--path=deploy", "--replace"},
		{"pull", "artifact", app, "--path=up/new"},
	} {
		var p process
		if status := p.run(t.Context(), args...); status == 0 || !strings.Contains(p.err.String(), "out of the working folder") || strings.Contains(p.out.String(), "the runner's") {
			t.Errorf("%v: status %d: %s%s", args, status, p.out.String(), p.err.String())
		}
	}
	if got := tree(t, home); got != `key false "the runner's"` {
		t.Errorf("the runner has\n%s", got)
	}
	mustRun(t, "diff", "artifact", app, "--path=inside")
	mustRun(t, "push", "artifact", app, "--path", filepath.Join(home, "."))
}

// TestProgress checks that a terminal shows how far a transfer is, and that the line is cleared at
// the end. Without a terminal, only the result is written.
func TestProgress(t *testing.T) {
	host := serve(t, distribution(t))
	app := "oci://" + host + "/app:1.0.0"
	large := make([]byte, 2<<20)
	_, _ = rand.Read(large)
	source := folder(t, map[string]string{"large.bin": string(large)})
	for _, args := range [][]string{
		{"push", "artifact", app, "--path", source},
		{"pull", "artifact", app, "--path", filepath.Join(t.TempDir(), "x")},
	} {
		terminal := process{terminal: true}
		if status := terminal.run(t.Context(), args...); status != 0 {
			t.Fatal(terminal.err.String())
		}
		shown := terminal.err.String()
		if !strings.Contains(shown, "2.0 MiB of 2.0 MiB (100 %)") || !strings.HasSuffix(shown, "\r\x1b[K") || strings.Contains(shown, "\n") {
			t.Errorf("shown: %q", shown)
		}
		if strings.ContainsRune(terminal.out.String(), '\x1b') {
			t.Errorf("the result is %q", terminal.out.String())
		}
	}
	var pipe process
	if status := pipe.run(t.Context(), "push", "artifact", app, "--path", source); status != 0 || pipe.err.Len() > 0 {
		t.Errorf("status %d: %q", status, pipe.err.String())
	}
}

// TestRefusals compares the error texts that users see most often with a golden file.
func TestRefusals(t *testing.T) {
	host := serve(t, distribution(t))
	app := "oci://" + host + "/app"
	source := folder(t, map[string]string{"app.yaml": "1"})
	odd := folder(t, map[string]string{"app.yaml": "1", ".sourceignore": "a\n[b\n"})
	leaving := folder(t, map[string]string{"app.yaml": "1"})
	must.Succeed(t, os.Symlink("/etc/passwd", filepath.Join(leaving, "passwd")))
	mustRun(t, "push", "artifact", app+":1.0.0", "--path", source)
	var all strings.Builder
	for _, args := range [][]string{
		{"push", "artifact", app, "--path", source},
		{"push", "artifact", app + ":1.0.0"},
		{"push", "artifact", app + ":1.0.0", "--path", "./none"},
		{"push", "artifact", app + ":1.0.0", "--path", odd},
		{"push", "artifact", app + ":1.0.0", "--path", leaving},
		{"push", "artifact", app + ":1.0.0", "--path", source, "--max-size=1Ki"},
		{"push", "artifact", app + ":1.0.0", "--path", source + "/app.yaml", "--ignore-paths=*.yaml"},
		{"diff", "artifact", app + ":1.0.0", "--path", source + "/app.yaml", "--ignore-paths=*.yaml"},
		{"push", "artifact", "oci://user:secret@" + host + "/app:1.0.0", "--path", source},
		{"pull", "artifact", app + ":2.0.0", "--path", "./none"},
		{"pull", "artifact", app + "-2:1.0.0", "--path", "./none"},
		{"pull", "artifact", app + ":1.0.0", "--path", source},
		{"pull", "artifact", app + ":1.0.0", "--path", "./none", "--max-size=10"},
		{"pull", "artifact", app + ":1.0.0", "--path", "./none", "--max-files=0"},
		{"list", "artifact", app + ":1.0.0"},
		{"list", "artifact", app, "--filter-semver=one"},
		{"list", "artifact", app, "--filter-regex=("},
		{"tag", "artifact", app + ":1.0.0"},
		{"tag", "artifact", app + ":1.0.0", "--tag=a/b"},
		{"diff", "artifact", app + ":1.0.0", "--path", "./none"},
		{"list", "artifact", "oci://127.0.0.1:1/app"},
	} {
		var p process
		status := p.run(t.Context(), args...)
		if strings.Contains(p.err.String(), "secret@") || strings.Contains(p.err.String(), "controller") || strings.Contains(p.err.String(), "spec.") {
			t.Errorf("%v: %s", args, p.err.String())
		}
		line := append([]string{"$ lanyard"}, args...)
		all.WriteString(strings.Join(line, " ") + "\n" + p.out.String() + p.err.String() + "exit status " + string(rune('0'+status)) + "\n\n")
	}
	golden.Compare(t, "testdata/refusals.golden", []byte(strings.NewReplacer(host, "registry.example.com", source, "./source", odd, "./odd", leaving, "./leaving").Replace(all.String())))
}
