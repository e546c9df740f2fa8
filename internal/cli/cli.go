// Package cli is the command lanyard: flags, help and output. What the commands do is in packages of their own.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// IO is what the command has of the process that it runs in.
type IO struct {
	// Out receives what was asked for, Err progress, advice and errors.
	Out, Err io.Writer
	// Env looks up the environment.
	Env func(string) string
	// Home is the user's home folder; empty if there is none.
	Home string
	// Program is the name that the command was called by; advice uses it.
	Program string
	// Terminal says that Err is a terminal, on which a line can be written anew.
	Terminal bool
	// Build is what the program was built from.
	Build Build
}

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError says why a command line makes no sense.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string {
	said := strings.TrimSpace(e.err.Error())
	if strings.Contains(said, "\n") { // a suggestion stands on a line of its own
		return fmt.Sprintf("%s\n\nSee %s --help", said, e.command)
	}
	return fmt.Sprintf("%s; see %s --help", said, e.command)
}

func (e *usageError) Unwrap() error { return e.err }

// Run runs the command and returns the process's exit status: 0 if all was as it should be, 1 if not, 2 for a command line
// that makes no sense. Args are without the program's name. The end of ctx stops what runs, in order.
func Run(ctx context.Context, args []string, std IO) int {
	root := newRoot(std) //nolint:contextcheck // cobra hands the context to each command
	root.SetArgs(args)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	err := root.ExecuteContext(ctx)
	var ran *runError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ran):
		_, _ = fmt.Fprintln(std.Err, "lanyard:", ran.err) // there is nobody else to tell
		return exitFailed
	}
	// What comes from cobra itself is about the command line.
	var usage *usageError
	if !errors.As(err, &usage) {
		usage = &usageError{root.CommandPath(), err}
	}
	_, _ = fmt.Fprintln(std.Err, "lanyard:", usage)
	return exitUsage
}

// runError is the failure of a command whose command line made sense.
type runError struct{ err error }

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

func newRoot(std IO) *cobra.Command {
	root := &cobra.Command{
		Use:   "lanyard",
		Short: "Short-lived credentials for every Kubernetes object, on your machine",
		Long: `Lanyard gives every Kubernetes object its own short-lived credential.

This command shows it at work without a cluster or a cloud account: it starts a real Kubernetes API and local clouds that
verify as AWS, Azure and Google Cloud do, on loopback, and tells for each object as whom it was fetched, with what result,
and why.`,
		Example: `  # Show the whole: two tenants, and what each may not do
  lanyard up

  # The same table for any cluster that Lanyard runs in
  lanyard status -A`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newUp(std), newStatus(std), newCloud(std), newVersion(std))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &usageError{c.CommandPath(), err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	finish(root)
	return root
}

// finish makes every command refuse what it would ignore, and tells its own failures from those of the command line.
func finish(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{c.CommandPath(), fmt.Errorf("unexpected argument %q", args[0])}
			}
			return nil
		}
		c.RunE = func(c *cobra.Command, args []string) error {
			err := run(c, args)
			var usage *usageError
			if err == nil || errors.As(err, &usage) {
				return err
			}
			return &runError{err}
		}
	}
	for _, sub := range c.Commands() {
		finish(sub)
	}
}

// dirFlag is the folder that the demonstration lies in.
func dirFlag(c *cobra.Command, dir *string, usage string) {
	c.Flags().StringVar(dir, "dir", ".demo", usage)
	if err := c.MarkFlagDirname("dir"); err != nil {
		panic(err) // the flag was defined above
	}
}
