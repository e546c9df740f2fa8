package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// fileVar is an environment variable. If it is set, the test binary runs as the program lanyard.
// The value is the path that the program then takes for its own executable.
const fileVar = "LANYARD_TEST_FILE"

func TestMain(m *testing.M) {
	if mount := os.Getenv(mountVar); mount != "" {
		os.Exit(Run(context.Background(), os.Args[1:], IO{
			IO:      frame.IO{Kinds: kinds.All(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Home: os.Getenv("HOME"), Mount: mount},
			Program: "lanyard",
		}))
	}
	if file := os.Getenv(fileVar); file != "" {
		os.Exit(Run(context.Background(), os.Args[1:], IO{
			IO: frame.IO{Kinds: kinds.All(), Out: os.Stdout, Err: os.Stderr}, Program: os.Args[0], File: file,
			Exec: func(path string, argv []string) error { return syscall.Exec(path, argv, os.Environ()) },
		}))
	}
	os.Exit(m.Run())
}

// beside writes a script to the file lanyard-local in a new folder. It returns the path that the
// program lanyard would have in this folder.
func beside(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, localProgram), []byte("#!/bin/sh\n"+script), 0o755))
	return filepath.Join(dir, "lanyard")
}

// lanyard returns a command that runs the program as a process. The script takes the place of
// lanyard-local.
func lanyard(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), fileVar+"="+beside(t, script))
	return cmd
}

// TestLocalTakesOver asserts that lanyard passes arguments, standard input and signals to
// lanyard-local, and has the same output and exit status.
func TestLocalTakesOver(t *testing.T) {
	t.Run("arguments, streams and status", func(t *testing.T) {
		cmd := lanyard(t, `printf '<%s>' "$@"; cat; echo complaint >&2; exit 7`, "up", "--once", "a b", "-o", "json")
		cmd.Stdin = strings.NewReader("input")
		var complaint strings.Builder
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != 7 {
			t.Errorf("ended with %v", err)
		}
		if string(out) != "<up><--once><a b><-o><json>input" || complaint.String() != "complaint\n" {
			t.Errorf("printed %q and %q", out, complaint.String())
		}
	})
	t.Run("signals", func(t *testing.T) {
		cmd := lanyard(t, `trap 'echo interrupted; exit 3' INT; echo up; read line`, "cloud")
		stdin, err := cmd.StdinPipe()
		must.Succeed(t, err)
		defer stdin.Close()
		stdout, err := cmd.StdoutPipe()
		must.Succeed(t, err)
		must.Succeed(t, cmd.Start())
		if _, err := io.ReadFull(stdout, make([]byte, len("up\n"))); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, cmd.Process.Signal(os.Interrupt))
		rest, err := io.ReadAll(stdout)
		must.Succeed(t, err)
		var ended *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 3 || string(rest) != "interrupted\n" {
			t.Errorf("ended with %v after %q", err, rest)
		}
	})
}

// TestLocalCommandLines checks which command lines lanyard-local gets: its commands, their help and
// their completion.
func TestLocalCommandLines(t *testing.T) {
	file := beside(t, "")
	for line, local := range map[string]bool{
		"up": true, "up --help": true, "cloud env -o json": true, "help up": true, "help cloud env": true,
		"__complete up --d": true, "__completeNoDesc cloud env ": true, "__complete up ": true,
		"": false, "--help": false, "help": false, "help status": false, "status": false, "upp": false, "__complete up": false,
		"__complete status -": false, "version": false,
	} {
		args := strings.Split(line, " ")
		if line == "" {
			args = nil
		}
		var got []string
		var c command
		Run(t.Context(), args, IO{
			IO:      frame.IO{Kinds: kinds.All(), Out: &c.out, Err: &c.err, Env: func(string) string { return "" }},
			Program: "bin/lanyard", File: file,
			Exec: func(_ string, argv []string) error {
				got = argv
				return errors.New("the test ends here")
			},
		})
		if want := append([]string{"bin/lanyard"}, args...); local && !slices.Equal(got, want) {
			t.Errorf("lanyard %s: lanyard-local is called with %q, want %q", line, got, want)
		}
		if !local && got != nil {
			t.Errorf("lanyard %s is given to lanyard-local", line)
		}
	}
}

// TestLocalIsFound checks where lanyard looks for lanyard-local, and the error if lanyard-local is
// missing.
func TestLocalIsFound(t *testing.T) {
	here, path := beside(t, ""), filepath.Dir(beside(t, ""))
	t.Setenv("PATH", path)
	for file, want := range map[string]string{
		here:                                  filepath.Join(filepath.Dir(here), localProgram),
		filepath.Join(t.TempDir(), "lanyard"): filepath.Join(path, localProgram),
		"":                                    filepath.Join(path, localProgram),
	} {
		if got, err := findLocal(file); err != nil || got != want {
			t.Errorf("beside %q it is %q, %v; want %q", file, got, err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	var c command
	status := Run(t.Context(), []string{"up"}, IO{IO: frame.IO{Kinds: kinds.All(), Out: &c.out, Err: &c.err}, File: filepath.Join(t.TempDir(), "lanyard")})
	if status != frame.Failed || c.out.Len() > 0 {
		t.Errorf("without it: status %d, prints %q", status, c.out.String())
	}
	for _, want := range []string{"lanyard: ", localProgram, "make build", "PATH"} {
		if !strings.Contains(c.err.String(), want) {
			t.Errorf("does not say %q: %s", want, c.err.String())
		}
	}
}
