package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// callsLanyard finds a line of an example that calls the command.
var callsLanyard = regexp.MustCompile(`(?m)^[^#\n]* lanyard [a-z]`)

// TestExamplesParse runs the examples of all commands in a shell. Scripts stand in for lanyard and
// for the other programs. The real command must accept the arguments of each call of lanyard.
func TestExamplesParse(t *testing.T) {
	bash, err := exec.LookPath("bash")
	must.Succeed(t, err)
	programs, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	write := func(name, script string) {
		must.Succeed(t, os.WriteFile(filepath.Join(programs, name), []byte("#!"+bash+"\n"+script+"\n"), 0o700))
	}
	write("lanyard", `printf '%s\x1f' "$@" >> "$CALLS"; printf '\x1e' >> "$CALLS"`)
	others := []string{"aws", "docker", "kubectl", "ln", "mkdir", "curl", "jq", "gcloud", "cat"}
	for _, name := range others {
		write(name, "exit 0")
	}
	for _, sub := range commands(newRoot(IO{IO: frame.IO{Kinds: kinds.All()}})) {
		for example := range strings.SplitSeq(sub.Example, "\n\n") {
			home := t.TempDir()
			for _, folder := range []string{".config/lanyard", ".docker"} {
				must.Succeed(t, os.MkdirAll(filepath.Join(home, folder), 0o700))
			}
			_ = os.Remove(calls) // fails if the file does not exist
			cmd := exec.CommandContext(t.Context(), bash, "-c", example+"\nwait")
			cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=" + programs, "CALLS=" + calls}
			if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "not found") {
				t.Errorf("%s: %v: %s\n%s", sub.CommandPath(), err, out, example)
			}
			recorded, err := os.ReadFile(calls)
			if err != nil && callsLanyard.MatchString(example) {
				t.Errorf("%s: the example calls nothing:\n%s", sub.CommandPath(), example)
			}
			for call := range strings.SplitSeq(strings.TrimSuffix(string(recorded), "\x1e"), "\x1e") {
				args := strings.Split(strings.TrimSuffix(call, "\x1f"), "\x1f")
				if _, local := localCommands()[args[0]]; local || call == "" || slices.Contains([]string{"completion"}, args[0]) {
					continue
				}
				root := newRoot(IO{IO: frame.IO{Kinds: kinds.All(), Env: func(string) string { return "" }}})
				called, rest, err := root.Find(args)
				if err == nil {
					err = called.ParseFlags(rest)
				}
				if err == nil {
					err = called.ValidateArgs(called.Flags().Args())
				}
				if err != nil || called == root && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
					t.Errorf("%s: lanyard %q: %v", sub.CommandPath(), args, err)
				}
			}
		}
	}
}
