package frame

import (
	"time"

	"github.com/spf13/cobra"
)

// CompletionTimeout bounds the time that the shell waits for completions.
const CompletionTimeout = 3 * time.Second

// The functions below set how the shell completes a flag or an argument. A flag must be defined
// already. By default, the shell offers names of files.

// CompleteFlag sets the function that offers the values of a flag.
func CompleteFlag(c *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag was not defined before
	}
}

// CompleteNothing makes the shell offer no values of these flags.
func CompleteNothing(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		CompleteValues(c, flag)
	}
}

// CompleteFirst makes the shell complete the first argument of a command, and no other.
func CompleteFirst(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(c, args, begun)
	}
}

// CompleteValues makes the shell offer these values of a flag.
func CompleteValues(c *cobra.Command, flag string, values ...cobra.Completion) {
	CompleteFlag(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteDir makes the shell offer folders as values of a flag.
func CompleteDir(c *cobra.Command, flag string) {
	CompleteFlag(c, flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
}

// CompleteFile makes the shell offer files with one of the extensions, such as "yaml".
func CompleteFile(c *cobra.Command, flag string, extensions ...cobra.Completion) {
	CompleteFlag(c, flag, cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt))
}
