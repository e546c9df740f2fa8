package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// localProgram is the program that runs a cluster and a cloud on this machine.
const localProgram = "lanyard-local"

// localCommands returns the commands of lanyard-local with their short descriptions.
func localCommands() map[string]string {
	return map[string]string{"up": frame.UpShort, "cloud": frame.CloudShort}
}

// isLocal reports whether a command line is for lanyard-local: a command of lanyard-local, or the
// help or the completion of such a command.
func isLocal(args []string) bool {
	if len(args) > 1 && args[0] == "help" {
		args = args[1:]
	}
	// To ask for completions, the shell runs lanyard with a request, such as __complete, as the
	// first argument. The words that the user has typed follow. If only one word follows, the user
	// is still typing it, and lanyard itself completes it.
	if len(args) > 2 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		args = args[1:]
	}
	if len(args) == 0 {
		return false
	}
	_, ok := localCommands()[args[0]]
	return ok
}

// errNoLocal says how to get lanyard-local.
var errNoLocal = errors.New("there is no program " + localProgram + `, neither beside this one nor in PATH
Run "make build" in Lanyard's repository, which makes bin/` + localProgram + `, and put that beside this program`)

// runLocal replaces this process by lanyard-local, which then has the streams, the signals and the
// exit status. As argv[0] it gets the name of this program, which lanyard-local repeats in its
// advice.
func runLocal(args []string, std IO) error {
	path, err := findLocal(std.File)
	if err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", path, std.Exec(path, append([]string{std.Program}, args...)))
}

// findLocal finds lanyard-local beside this program's file, or in PATH.
func findLocal(file string) (string, error) {
	beside := filepath.Join(filepath.Dir(file), localProgram)
	if info, err := os.Stat(beside); file != "" && err == nil && !info.IsDir() {
		return beside, nil
	}
	path, err := exec.LookPath(localProgram)
	if err != nil {
		return "", errNoLocal
	}
	return path, nil
}
