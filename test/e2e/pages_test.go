package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/chart"
)

// Time limits for the commands of a page.
const (
	commandTimeout = 15 * time.Minute // a command may download and compile modules
	interruptGrace = time.Minute
)

// special describes a command that needs special treatment. begin is the command's prefix. At most
// one of leftOut, stays and fails is set.
type special struct {
	begin string
	// leftOut is the reason why the command cannot run in this test.
	leftOut string
	// instead is a function that checks a left-out command as far as possible. It may be nil.
	instead func(t *testing.T, command string)
	// stays is the text that the command prints when it is ready. The command then keeps running
	// until it is interrupted, while further commands run.
	stays string
	// fails is true if the page says that the command fails. Then the command must fail.
	fails bool
	// says is a list of texts that the command must print.
	says []string
}

// specials describes the commands that need special treatment, from all pages. Such a command
// cannot simply run and succeed, or the test checks its output.
var specials = []special{
	{begin: "make demo", stays: "Stop it with Ctrl-C"},
	{begin: "make test", leftOut: "it runs this test"},
	{begin: "podman build ", leftOut: "it needs a container engine, and images of other registries"},
	{begin: "podman push ", leftOut: "it needs a registry that is yours"},
	{begin: "helm install ", leftOut: "it needs a cluster whose nodes run containers", instead: wantInstallable},
	{begin: "AWS_ROLE_ARN=arn:aws:iam::123456789123:role/tenant-a-ecr aws ", says: []string{":assumed-role/tenant-a-ecr/"}},
	{begin: "AWS_ROLE_ARN=arn:aws:iam::123456789123:role/tenant-b-ecr aws ", fails: true, says: []string{"AccessDenied"}},
	{begin: "bin/lanyard cloud journal --service sts --verdict refused", says: []string{"AccessDenied", "system:serviceaccount:tenant-a:tenant-a-ecr-sa"}},
}

// specialOf returns the element of specials for a command, or a zero value if there is none.
func specialOf(command string) special {
	for _, s := range specials {
		if strings.HasPrefix(command, s.begin) {
			return s
		}
	}
	return special{}
}

// TestPages runs the commands of README.md and docs/library.md in order, and then once more. Each
// command must work both times. The commands are the blocks of ```sh. They run in a copy of the
// repository as it is after `make build`.
func TestPages(t *testing.T) {
	beside(t, lane3)
	found := map[string]bool{}
	for _, page := range []string{"README.md", "docs/library.md"} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", page))
			must(t, "read the page", err)
			commands, err := shellCommands(text)
			must(t, "read the commands of the page", err)
			if len(commands) == 0 {
				return
			}
			for _, command := range commands {
				found[specialOf(command).begin] = true
			}
			r := newReader(t)
			for range 2 {
				r.follow(t, commands)
			}
			if page == "README.md" {
				wantTable(t, text, r.demo)
			}
		})
	}
	for _, s := range specials {
		if !found[s.begin] {
			t.Errorf("no command of a page begins with %q: this test does not read the pages right", s.begin)
		}
	}
}

// shellCommands returns the commands in a page's blocks of ```sh:
//   - A line that begins with a prefix in specials starts a command of its own.
//   - Other lines that follow each other in a block form one command.
//   - If a line ends with a backslash, the next line belongs to the same command.
//   - All lines of a here-document belong to the command that starts it.
//
// Indented code without a fence is an error, because it could hold commands that nobody runs.
func shellCommands(page []byte) ([]string, error) {
	var commands []string
	// The variable open is empty if the last command may end here. In a here-document, it is the
	// end mark. After another line that ends with a backslash, it is a backslash.
	language, inside, open := "", false, ""
	joins := false // true if the next line may belong to the last command
	lines := bufio.NewScanner(bytes.NewReader(page))
	for lines.Scan() {
		line := lines.Text()
		if fence, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "```"); ok {
			language, inside, joins = fence, !inside, false
			continue
		}
		switch {
		case !inside && strings.HasPrefix(line, "    ") && strings.TrimSpace(line) != "":
			return nil, fmt.Errorf("code is indented, not fenced: %s", line)
		case !inside || language != "sh":
		case open != "":
			commands[len(commands)-1] += "\n" + line
			if line == open || open == `\` && !strings.HasSuffix(line, `\`) {
				open = ""
			}
		case strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#"):
			plain := specialOf(line).begin == ""
			if joins && plain {
				commands[len(commands)-1] += "\n" + line
			} else {
				commands = append(commands, line)
			}
			joins = plain
			if end := hereDocument.FindStringSubmatch(line); end != nil {
				open = end[1]
			} else if strings.HasSuffix(line, `\`) {
				open = `\`
			}
		}
	}
	return commands, lines.Err()
}

// hereDocument matches the start of a here-document and extracts its end mark.
var hereDocument = regexp.MustCompile(`<<-?['"]?(\w+)`)

func TestShellCommands(t *testing.T) {
	beside(t)
	page := "text\n```go\ngo()\n```\n\n```sh\n# comment\nfirst\nlong \\\n  longer \\\n  end\n\ncat <<'END'\nhere\n\nEND\nlast\nmake demo\nnext\n```\n- list\n\n  ```sh\n  indented\n  ```\n"
	got, err := shellCommands([]byte(page))
	want := []string{"first\nlong \\\n  longer \\\n  end\ncat <<'END'\nhere\n\nEND\nlast", "make demo", "next", "  indented"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("commands are %q, %v; want %q", got, err, want)
	}
	if _, err := shellCommands([]byte("text\n\n    make demo\n")); err == nil {
		t.Error("a command that is only indented is overlooked")
	}
}

// reader follows a page in a shell.
type reader struct {
	repository string   // the reader's copy of the repository
	state      string   // script that restores the shell's variables and working folder
	env        []string // environment of a new shell
	running    []*staying
	demo       string // output of the last `make demo`
}

// staying is a command that runs until it is interrupted.
type staying struct {
	cmd    *exec.Cmd
	output *output
	ended  chan error
}

func newReader(t *testing.T) *reader {
	t.Helper()
	root := t.TempDir()
	r := &reader{repository: filepath.Join(root, "lanyard"), state: filepath.Join(root, "shell")}
	copyRepository(t, r.repository)
	// The shell has no credentials of the machine. It has Go's caches, because a first build takes
	// long. It also has the settings with which the packages in these caches were compiled.
	r.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "TMPDIR=" + root, "TERM=dumb"}
	for _, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE", "GOFLAGS", "CGO_ENABLED", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOTOOLCHAIN"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		must(t, "go env "+name, err)
		r.env = append(r.env, name+"="+strings.TrimSpace(string(value)))
	}
	return r
}

// copyRepository copies the repository as it is after `make build`. It copies the files that git
// lists, in their current state, and the built programs. Files keep their times, so that make
// builds nothing again.
func copyRepository(t *testing.T, to string) {
	t.Helper()
	root := filepath.Join("..", "..")
	listed, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	must(t, "git ls-files", err)
	files := []string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		files = append(files, filepath.FromSlash(name))
	}
	for _, program := range []string{"lanyard", "lanyard-local", "lanyard-controller", "controlplane", "lanyard-token-server", "lanyard-discovery", "lanyard-identity-controller"} {
		files = append(files, filepath.Join("bin", program))
	}
	for _, name := range files {
		must(t, "copy "+name, copyFile(filepath.Join(root, name), filepath.Join(to, name)))
	}
}

// copyFile copies a file with its mode and its time.
func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, info.Mode()), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// follow runs the commands of a page once, in a new shell. At the end, it interrupts commands that
// still run.
func (r *reader) follow(t *testing.T, commands []string) {
	t.Helper()
	must(t, "open a new shell", os.WriteFile(r.state, []byte("cd "+r.repository+"\n"), 0o600))
	defer r.interrupt(t)
	for _, command := range commands {
		s := specialOf(command)
		switch {
		case s.leftOut != "":
			t.Logf("left out, because %s: %s", s.leftOut, command)
			if s.instead != nil {
				s.instead(t, command)
			}
		case s.stays != "":
			r.stay(t, command, s.stays)
		default:
			r.run(t, command, s)
		}
	}
}

// shell prepares a command. It starts with the variables and the working folder that the commands
// before it left when they ended.
func (r *reader) shell(ctx context.Context, command string) *exec.Cmd {
	const script = `set -ae; . "$1"; trap '{ export -p; echo "cd \"$PWD\""; } > "$1"' EXIT; eval "$2"`
	cmd := exec.CommandContext(ctx, "bash", "-c", script, "page", r.state, command)
	cmd.Env = r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func (r *reader) run(t *testing.T, command string, s special) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := r.shell(ctx, command)
	out, err := cmd.CombinedOutput()
	// Later commands of the page end this command's background processes. If the test fails, the
	// later commands do not run, so kill these processes.
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	if s.fails == (err == nil) || ctx.Err() != nil {
		t.Fatalf("%s\nended with %v; want a failure: %v\n%s", command, err, s.fails, out)
	}
	for _, word := range s.says {
		if !strings.Contains(string(out), word) {
			t.Errorf("%s\ndoes not say %q:\n%s", command, word, out)
		}
	}
}

// stay starts a command that keeps running. It returns once the command prints a given text.
func (r *reader) stay(t *testing.T, command, ready string) {
	t.Helper()
	s := &staying{output: &output{}, ended: make(chan error, 1)}
	s.cmd = r.shell(context.WithoutCancel(t.Context()), command)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	must(t, "start "+command, s.cmd.Start())
	go func() { s.ended <- s.cmd.Wait() }()
	r.running = append(r.running, s)
	deadline := time.After(commandTimeout)
	for !strings.Contains(s.output.String(), ready) {
		select {
		case err := <-s.ended:
			s.ended <- err
			t.Fatalf("%s\nended with %v:\n%s", command, err, s.output)
		case <-deadline:
			t.Fatalf("%s\nis not ready after %s:\n%s", command, commandTimeout, s.output)
		case <-time.After(50 * time.Millisecond):
		}
	}
	r.demo = s.output.String()
}

// interrupt ends the running commands, as Ctrl-C does.
func (r *reader) interrupt(t *testing.T) {
	t.Helper()
	for _, s := range slices.Backward(r.running) {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT)
		select {
		case <-s.ended: // ignore the command's error, because the interruption causes one
		case <-time.After(interruptGrace):
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			<-s.ended
			t.Errorf("did not end %s after Ctrl-C:\n%s", interruptGrace, s.output)
		}
	}
	r.running = nil
}

// output is the output of a running command so far. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// wantInstallable asserts that the chart renders with the values and the namespace of a helm
// command.
func wantInstallable(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(command)
	release := chart.Release{Name: words[2]}
	var values []string
	for i, word := range words[:len(words)-1] {
		switch word {
		case "--namespace":
			release.Namespace = words[i+1]
		case "--set":
			values = append(values, strings.Replace(words[i+1], "<registry>", "registry.example.com", 1))
		}
	}
	var err error
	release.Values, err = chart.ParseValues(values)
	must(t, "read the values of "+command, err)
	_, err = chart.Objects(release)
	must(t, "render the chart as "+command, err)
}

// wantTable asserts that the demonstration printed the rows of a page's table. It ignores digests
// of buckets, which change with each run, and the last column, which the page shortens.
func wantTable(t *testing.T, page []byte, demo string) {
	t.Helper()
	_, table, _ := strings.Cut(string(page), "```text\n")
	table, _, _ = strings.Cut(table, "…\n```")
	row := func(line string) string {
		words := strings.Fields(line)
		for i, word := range words {
			if strings.HasSuffix(word, ":") && i > 3 { // this word is the reason; the message after it is left out
				words = words[:i+1]
				break
			}
		}
		if i := slices.Index(words, "Pulled"); i >= 0 {
			words = slices.Delete(words, i+1, i+2)
		}
		return strings.Join(words, " ")
	}
	printed := map[string]bool{}
	for line := range strings.Lines(demo) {
		printed[row(line)] = true
	}
	rows := 0
	for line := range strings.Lines(table) {
		rows++
		if !printed[row(line)] {
			t.Errorf("the demonstration does not print %q:\n%s", row(line), demo)
		}
	}
	if rows < 5 {
		t.Errorf("the page's table has %d rows: it is not read right", rows)
	}
}
