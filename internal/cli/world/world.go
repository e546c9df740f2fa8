// Package world has the commands of the program lanyard-local: lanyard up and lanyard cloud. The
// program lanyard runs lanyard-local for these commands, so help and errors say lanyard.
package world

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// IO has what a command gets from its program, such as standard output.
type IO struct {
	// Out receives the command's result. Err receives progress, advice and errors.
	Out, Err io.Writer
	// Program is the name by which lanyard is called; advice uses it.
	Program string
	// Programs is the folder with the programs that lanyard up starts: this program's own folder.
	// If a program is not in the folder, lanyard up looks for it in PATH.
	Programs string
	// Terminal says that Err is a terminal, where a line can be overwritten.
	Terminal bool
}

// Run runs the command and returns the process's exit status, see [frame.Run]. The program's name
// is not in args.
func Run(ctx context.Context, args []string, std IO) int {
	root := newRoot(std) //nolint:contextcheck // cobra hands the context to each command
	return frame.Run(ctx, root, args, std.Out, std.Err)
}

func newRoot(std IO) *cobra.Command {
	root := &cobra.Command{
		Use:   frame.Name,
		Short: "A cluster and a cloud on this machine",
		Long: `Run a cluster and a cloud on this machine.

"lanyard" runs this program, lanyard-local, for the commands below. It has all others itself.`,
		Example: `  lanyard up
  lanyard cloud`,
	}
	root.AddCommand(newUp(std), newCloud(std))
	return root
}

// dirFlag adds the flag --dir, the folder with the files of the demonstration.
func dirFlag(c *cobra.Command, dir *string, usage string) {
	c.Flags().StringVar(dir, "dir", ".demo", usage)
	frame.CompleteDir(c, "dir")
}
