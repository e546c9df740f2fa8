// Package frame has the code that the programs lanyard and lanyard-local share. It defines exit
// statuses, errors of the command line, and output formats. Users see both programs as the command
// lanyard.
package frame

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Name is the name of the command.
const Name = "lanyard"

// ReleaseNamespace is the namespace of Lanyard's release, unless a flag names another.
const ReleaseNamespace = "lanyard-system"

// Short descriptions of lanyard-local's commands, which the help of lanyard lists too.
const (
	UpShort    = "Start a cluster, a local cloud and Lanyard, and show what each tenant gets"
	CloudShort = "Run the local cloud alone"
)

// IO has what a command of lanyard gets from its program, such as standard input and environment.
type IO struct {
	// In is the standard input, for commands that read it.
	In io.Reader
	// Out receives the command's result. Err receives advice and errors.
	Out, Err io.Writer
	// Env looks up the environment.
	Env func(string) string
	// Home is the user's home folder; empty if there is none.
	Home string
	// Mount is the folder where Kubernetes mounts a Pod's ServiceAccount. If empty, commands do not
	// look for a ServiceAccount.
	Mount string
	// Kinds is the table of the kinds of objects that commands support. Required.
	Kinds kinds.Table
}

// IsTerminal reports whether a line that is written to f can be overwritten. It is false for
// devices that are no terminal, such as /dev/null. Callers pass the value of the variable TERM as
// kind.
func IsTerminal(f *os.File, kind string) bool { return term.IsTerminal(int(f.Fd())) && kind != "dumb" }

// Exit statuses besides 0.
const (
	// Failed says that the command failed, or that its verdict is bad.
	Failed = 1
	// Misused says that the command line is wrong.
	Misused = 2
	// Undecided says that a command failed before it had a verdict. It is for commands such as
	// diff, for which Failed is a verdict.
	Undecided = 3
	// Interrupted says that a signal ended the command before it was done. Shells use the same
	// status for SIGINT: 128 plus the signal's number.
	Interrupted = 130
)

// ErrSaid is the error of a command that has already printed why it failed.
var ErrSaid = errors.New("the command has said why it failed")

// usageError says that the command line is wrong.
type usageError struct {
	command string
	err     error
}

// UsageError wraps an error that says what is wrong with the command line. The returned error's
// text also refers to the command's --help.
func UsageError(c *cobra.Command, err error) error { return &usageError{c.CommandPath(), err} }

func (e *usageError) Error() string {
	said := strings.TrimSpace(e.err.Error())
	// cobra's suggestions have several lines, so "See … --help" becomes a paragraph of its own.
	if strings.Contains(said, "\n") {
		return fmt.Sprintf("%s\n\nSee %s --help", said, e.command)
	}
	return fmt.Sprintf("%s; see %s --help", said, e.command)
}

func (e *usageError) Unwrap() error { return e.err }

// Undecide wraps an error so that [Run] returns [Undecided] instead of [Failed]. It is for commands
// such as diff. There, the status [Failed] is a verdict: something differs. So an error that
// prevents the verdict needs another status.
func Undecide(err error) error { return &undecidedError{err} }

// undecidedError is the failure of a command that has no verdict.
type undecidedError struct{ error }

func (e *undecidedError) Unwrap() error { return e.error }

// runError is the failure of a command whose command line was right.
type runError struct{ error }

func (e *runError) Unwrap() error { return e.error }

// Run runs a root command and returns the process's exit status: 0, [Failed], [Misused],
// [Undecided] or [Interrupted]. The program's name is not in args. A signal ends ctx, and then the
// command stops cleanly.
func Run(ctx context.Context, root *cobra.Command, args []string, out, errs io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(UsageError)
	root.CompletionOptions.HiddenDefaultCmd = true
	refuseUnknownTopics(root)
	finish(root)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	var ran *runError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		Say(errs, errors.New("interrupted"))
		return Interrupted
	case errors.Is(err, ErrSaid):
		return Failed
	case errors.As(err, &ran):
		Say(errs, ran.error)
		if _, undecided := errors.AsType[*undecidedError](err); undecided {
			return Undecided
		}
		return Failed
	}
	// Any other error comes from cobra, and is about the command line.
	var usage *usageError
	if !errors.As(err, &usage) {
		usage = &usageError{root.CommandPath(), err}
	}
	Say(errs, usage)
	return Misused
}

// Say writes an error with the command's name before it.
func Say(w io.Writer, err error) {
	_, _ = fmt.Fprintln(w, Name+":", err) // a failed write cannot be reported elsewhere
}

// refuseUnknownTopics makes "lanyard help" fail for a topic that is no command. Without
// refuseUnknownTopics, cobra would print the help of the root command, and succeed.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Run, c.Args = nil, cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, topic []string) error {
			about, rest, err := c.Root().Find(topic)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("there is no help about %q; see %s --help", strings.Join(topic, " "), root.CommandPath())
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		}
	}
}

// finish sets how c and its subcommands check their arguments and wrap their errors. A subcommand
// without Args refuses all arguments. An error of Args becomes a usageError. An error of RunE
// becomes a runError, unless it is a usageError.
func finish(c *cobra.Command) {
	if run := c.RunE; run != nil {
		if c.Args == nil && c.HasParent() {
			c.Args = refuseArguments
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
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return UsageError(c, err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		finish(sub)
	}
}

func refuseArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}
