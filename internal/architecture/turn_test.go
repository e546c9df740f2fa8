package architecture

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestCommandsInTurn asserts that dev/in-turn starts a command only once the command of another
// clone has ended. Programs that the ended command left running do not matter.
func TestCommandsInTurn(t *testing.T) {
	script, err := filepath.Abs(filepath.Join("..", "..", "dev", "in-turn"))
	must.Succeed(t, err)
	home := t.TempDir()
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), script, args...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME=")
		return cmd
	}

	// The first command ends when its input ends. It leaves a sleep running.
	first := command("sh", "-c", "sleep 60 >/dev/null & echo $!; cat")
	end, err := first.StdinPipe()
	must.Succeed(t, err)
	left := start(t, first)
	pid := line(t, left)
	t.Cleanup(func() { _ = exec.Command("kill", pid).Run() })

	second := command("echo", "my turn")
	said := start(t, second)
	if got, want := line(t, said), "waiting for another clone: its tests that measure time are running"; got != want {
		t.Errorf("the second command says %q, want %q", got, want)
	}
	must.Succeed(t, end.Close())
	if err := first.Wait(); err != nil {
		t.Errorf("the first command: %v", err)
	}
	if got, want := line(t, said), "my turn"; got != want {
		t.Errorf("the second command says %q, want %q", got, want)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("the second command: %v", err)
	}

	if err := command("false").Run(); err == nil {
		t.Error("a command failed, and dev/in-turn did not")
	}
}

// start starts a command and returns its standard output.
func start(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	return bufio.NewReader(out)
}

// line reads one line.
func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("read a line: %v", err)
	}
	return strings.TrimSuffix(text, "\n")
}
