// Package cli is the root of the program lanyard. It joins the commands, which are in the packages
// below. The program stays small because CI jobs download it. Another program, lanyard-local, has
// the commands that run a cluster and a cloud on this machine. The code of those commands is in
// package world.
package cli

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/artifacts"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/cli/keys"
	"github.com/lanyard-dev/lanyard/internal/cli/kustomizations"
	"github.com/lanyard-dev/lanyard/internal/cli/manifests"
	"github.com/lanyard-dev/lanyard/internal/cli/objects"
	"github.com/lanyard-dev/lanyard/internal/cli/token"
)

// IO has what the program needs from its process, such as the standard streams.
type IO struct {
	frame.IO

	// Terminal says that Err is a terminal, where a line can be overwritten.
	Terminal bool
	// Cache is the user's folder for files that may be lost; empty if there is none.
	Cache string
	// Build says from which version the program was built, and for which platform.
	Build Build
	// Program is the name that the command was called by.
	Program string
	// File is the path of the program's own file; empty if it is not known.
	File string
	// Exec replaces this process by another program, with argv and the same environment. It returns
	// only on failure.
	Exec func(path string, argv []string) error
}

// Run runs the command and returns the process's exit status, see [frame.Run]. The program's name
// is not in args. For a command of lanyard-local, Run replaces this process by that program, and
// returns only if that fails.
func Run(ctx context.Context, args []string, std IO) int {
	args = token.HelperArgs(std.Program, args)
	if isLocal(args) {
		frame.Say(std.Err, runLocal(args, std))
		return frame.Failed
	}
	root := newRoot(std) //nolint:contextcheck // cobra hands the context to each command
	return frame.Run(ctx, root, keys.ArgumentLast(args), std.Out, std.Err)
}

func newRoot(std IO) *cobra.Command {
	root := &cobra.Command{
		Use:   frame.Name,
		Short: "Short-lived credentials for every Kubernetes object, on your machine",
		Long: `Lanyard gives every Kubernetes object its own short-lived credential.

This command shows it without a cluster or a cloud account. On loopback it starts a real Kubernetes API, and local clouds
that verify as AWS, Azure and Google Cloud do. Then it shows each object's identity, result and reason.`,
		Example: `  # Show it all: three tenants, and what each may not do
  lanyard up

  # The same table for any cluster that Lanyard runs in
  lanyard status -A

  # In bash: complete commands, flags, and names of objects in the cluster
  source <(lanyard completion bash)`,
	}
	addVersionFlag(root, std)
	root.AddCommand(slices.Concat(
		objects.Commands(std.IO), token.Commands(std.IO), keys.Commands(std.IO), manifests.Commands(std.IO),
		artifacts.Commands(artifactsIO(std), kustomizations.NewDiff(std.IO, std.File)),
	)...)
	root.AddCommand(newVersion(std))
	for name, short := range localCommands() {
		// This command only makes the help complete. cli.Run starts lanyard-local before cobra sees
		// the arguments.
		root.AddCommand(&cobra.Command{Use: name, Short: short, Run: func(*cobra.Command, []string) {}})
	}
	return root
}

// artifactsIO returns the IO of the commands about artifacts.
func artifactsIO(std IO) artifacts.IO {
	uploads := ""
	if std.Cache != "" {
		uploads = filepath.Join(std.Cache, frame.Name, "uploads")
	}
	return artifacts.IO{Out: std.Out, Err: std.Err, Terminal: std.Terminal, Uploads: uploads, Credentials: token.JobProcess(std.IO)}
}
